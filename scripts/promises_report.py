"""What was found of the promises, in words."""

import statistics
import textwrap

GOALS = {"transfers": 10_000_000, "kills": 10_000, "fuzz": 24 * 3600}
GAP_US = 50_000
HOW = """How: `make promises ARGS="--minutes N"` goes on from what `promises.json` beside this file has, on any machine;
`--publish` adds to that what was found since, and writes this file. Nobody edits it by hand."""

NOT_COVERED = """- Other machines, and more processors than are named above.
- Transfers count what one process sends out of memory that its own threads change, in the ways that `tests/src/ground.rs`
  lists; each call that changes memory is tried for itself by the tests, which count no transfers. Hosts that are not this
  one are not among them.
- Kills are of one peer at a time, of a process (not of the host, nor of a single thread), and with `SIGKILL`. That a
  survivor holds the descriptors and shared mappings that it held before is checked after each; its memory is measured
  once, at the end, with all that it needed for the first time; names are counted once the next endpoint has listened, which removes those of the dead.
- Attackers are one at a time, but for the callers, who are three; many attackers at once are not measured.
- A peer of the same user whose memory goes between a look and the copy has one copy wait, for as long as it likes, and
  each child that it forks another one (`tests/tests/hostile/toggles.rs` has it held for 150 ms). Files of a file system
  that never reads them are tried where `/dev/fuse` may be opened, by root.
- The waits for a processor are those that the kernel counts for the threads of the two honest processes
  (`/proc/PID/schedstat`), of each process that of the thread which waited longest. Where a thread drives, two threads of
  the attacked process wait one after the other, and only one of these waits is taken away: what is left there is more
  than what is unexplained. What a host of virtual machines takes away is in no count.
- The fuzzers have decoders alone, without what stands behind them."""


def number(value):
    return f"{int(value):,}".replace(",", " ")


def ms(us):
    return f"{us / 1000:.1f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def entries(state, kind):
    """By name and user, in order."""
    listed = state["found"].get(kind, {})
    return [(*key.split("|"), entry) for key, entry in sorted(listed.items())]


def total(state, kind, key="count"):
    return sum(entry.get(key, 0) for _, _, entry in entries(state, kind))


def reached(state, kind):
    """How far a kind is, in a few words."""
    if kind == "attacks":
        longest = max((entry["most_longest_us"] for _, _, entry in entries(state, kind)), default=0)
        return f"{number(total(state, kind))} rounds, the longest gap {ms(longest)} ms"
    if kind == "fuzz":
        seconds = total(state, kind, "seconds")
        return f"{seconds / 3600:.2f} of {GOALS[kind] // 3600} h"
    return f"{number(total(state, kind))} of {number(GOALS[kind])}"


def of_goal(have, goal, unit):
    if have >= goal:
        return f"The goal, {number(goal)} {unit}, is reached: {number(have)}."
    return f"The goal, {number(goal)} {unit}, is not reached: {number(have)}, {100 * have / goal:.1f} % of it."


def transfers(state):
    rows = [(way, user, number(e["count"]), number(e.get("wrong", 0)),
             number(e["kept"]) if "kept" in e else "", number(e["copied"]) if "copied" in e else "", e["runs"])
            for way, user, e in entries(state, "transfers")]
    wrong = total(state, "transfers", "wrong")
    return "\n\n".join([
        "Memory is unmapped, mapped over, moved, discarded, protected, forked, and stamped anew, by the threads that send "
        "it; each transfer is compared byte by byte with what was stamped last. `Own memory` is what pins the sender's "
        "pages (with several threads over the same places), `message` what a peer received, by the path it came.",
        table(("transfers", "user", "count", "with wrong bytes", "out of memory kept registered", "copied, not pinned", "runs"),
              rows),
        f"{number(wrong)} of {number(total(state, 'transfers'))} had wrong bytes. "
        + of_goal(total(state, "transfers"), GOALS["transfers"], "transfers"),
    ])


def kills(state):
    rows = [(way, user, number(e["count"]), number(e["heard"]), middle(e, "median_us"), ms(e["most_us"]),
             number(e["names"]), f"{e['grown'] / 2**20:.1f}", e["runs"]) for way, user, e in entries(state, "kills")]
    return "\n\n".join([
        "A peer is killed (`SIGKILL`) in the middle of messages by every path, regions, spaces and active messages: at "
        "moments at random, and at each numbered point of the protocol, the 1st, 3rd and 20th time it comes there. The "
        "survivor talks to another peer by every path after each kill, and must then hold as many descriptors and shared "
        "mappings as before the first one; a kill after which it does not ends the run as wrong.",
        table(("killed", "user", "kills", "heard of", "to the error: median, ms", "most, ms", "names left",
               "survivor grown, MiB at most", "runs"), rows),
        "Victims that were not heard of were killed before the two had met. The delays are wall-clock times, under "
        "whatever else ran. " + of_goal(total(state, "kills"), GOALS["kills"], "kills"),
    ])


def attacks(state):
    listed = sorted(entries(state, "attacks"), key=lambda it: (not it[0].startswith("nobody"), it[0], it[1]))
    rows = [(way, user, e["runs"], number(e["count"]), middle(e, "longest_us"), ms(e["most_longest_us"]),
             middle(e, "unexplained_us"), ms(e["most_unexplained_us"]), ms(e["computed_us"]))
            for way, user, e in listed]
    loads = state["load"]
    over = [f"{way} ({user}): {ms(e['most_unexplained_us'])} ms" for way, user, e in listed
            if e["most_unexplained_us"] > GAP_US and not way.startswith("nobody")]
    goal = (f"Beyond what waiting for a processor explains, no gap under an attack was {GAP_US // 1000} ms or longer."
            if not over else f"Longer than {GAP_US // 1000} ms beyond that: " + "; ".join(over) + ".")
    return "\n\n".join([
        "Two honest processes exchange messages in turns while a third attacks one of them. A gap is the time from the "
        "end of one round to the end of the next; each run has one longest gap. `Unexplained` is what is left of a gap "
        "once the time is taken away in which a thread of the two was ready to run and had no processor. `Computed` is "
        "the most that the attacked process computed in one gap. The rows without an attack come first: the same two "
        "alone, and beside processes that only compute.",
        table(("attack", "user", "runs", "rounds", "longest gap, ms: median of the last runs", "of all",
               "unexplained, ms: median", "of all", "computed, ms at most"), rows),
        f"The load average when runs began was {min(loads):.1f} to {max(loads):.1f}, on the processors named above. {goal}"
        if loads else goal,
        "The attacked program of `answers` to `socket` takes all that attackers send, messages of a gigabyte among them, "
        "and looks at up to 36 operations, each with a turn of progress, between two looks at the honest peer, whose "
        "rounds are of up to 300 kB: what it computes meanwhile is in these gaps. That of the other rows has little else "
        "to do than to answer.",
    ])


def fuzz(state):
    rows = [(way, f"{e['seconds'] / 3600:.2f}", number(e["count"]), number(e["crashes"]), e["runs"])
            for way, _, e in entries(state, "fuzz")]
    seconds = total(state, "fuzz", "seconds")
    share = "is reached" if seconds >= GOALS["fuzz"] else f"is not reached: {100 * seconds / GOALS['fuzz']:.1f} % of it"
    return "\n\n".join([
        "Decoders of what peers and strangers send, under libFuzzer; the corpus is kept from run to run.",
        table(("decoder", "hours", "executions", "crashes", "runs"), rows),
        f"The goal, 24 h over all decoders, {share}.",
    ])


def mutations(state):
    stand = state["found"].get("mutations", {})
    tried = stand["listed"] - stand["not run"]
    said = [f"{stand['listed']} mutations are listed (tests/mutations); {tried} were tried by `make mutants`, "
            f"{stand['current']} of these with the sources of commit {stand['commit']}."]
    said.append(table(("killed", "survived", "skipped", "broken", "not tried"),
                      [[stand.get(key, 0) for key in ("killed", "survived", "skipped", "broken", "not run")]]))
    if stand["survivors"]:
        said.append("Survived: " + ", ".join(stand["survivors"]) + ".")
    return "\n\n".join(said)


SECTIONS = (
    ("transfers", "Transfers out of memory that changes", transfers),
    ("kills", "Peers that are killed", kills),
    ("attacks", "Peers that attack", attacks),
    ("mutations", "Checks that are taken out", mutations),
    ("fuzz", "Decoders", fuzz),
)


def report(state):
    out = ["# Promises under attack", HOW]
    out += ["\n".join(map(origin, state["on"]))] if state["on"] else []
    spent = ", ".join(f"{kind} {seconds / 60:.0f} min" for kind, seconds in sorted(state["spent_s"].items()))
    if "begun" in state:
        out.append(f"From {state['begun']} to {state['until']}; time spent: {spent or 'none'}.")
    for kind, title, write in SECTIONS:
        text = write(state) if state["found"].get(kind) else "Not run."
        out += [f"## {title}", text]
    out += ["## What went wrong", wrongs(state), "## What is not covered", NOT_COVERED]
    return "\n\n".join(map(wrapped, "\n\n".join(out).split("\n\n"))) + "\n"


def origin(on):
    """A commit and a machine, and what was found there."""
    units = {"transfers": "transfers", "kills": "kills", "attacks": "rounds under attack", "fuzz": "s of fuzzing"}
    counts = [f"{number(count)} {units[kind]}" for kind, count in sorted(on.get("counts", {}).items()) if count]
    said = f": {', '.join(counts)}" if counts else ""
    return f"- commit {on['commit']}, {on['processor']}, {on['processors']} processors, Linux {on['kernel']}{said}"


def middle(entry, key):
    """The median of the last runs; nothing where only the greatest value is known."""
    return ms(statistics.median(entry[key])) if entry.get(key) else ""


def wrapped(paragraph):
    """Prose in lines of some length; tables, lists and what is quoted stay as they are."""
    is_prose = not paragraph.startswith(("|", "#", "-", "    "))
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False) if is_prose else paragraph


def is_late(wrong):
    """Whether it did not end in time, as on a machine that others use, or for ever."""
    return "WATCHDOG" in wrong["said"] or wrong["said"].startswith("took more than")


def wrongs(state):
    said = []
    for late, title in ((False, "Failed:"), (True, "Not over in time, which may be the machine's load, or a wait without end:")):
        failed = [wrong for wrong in state["wrong"] if is_late(wrong) == late]
        said += [title] if failed else []
        for wrong in failed:
            load = f", at a load average of {wrong['load']}" if "load" in wrong else ""
            quoted = "\n".join("    " + line for line in wrong["said"].splitlines()[:6])
            said.append(f"- {wrong['portion']}, {wrong['when']}, commit {wrong['on']['commit']}{load}:\n\n{quoted}")
    if skipped := state["skipped"]:
        said.append("Skipped:\n\n" + "\n".join(f"- {line} ({count} times)" for line, count in sorted(skipped.items())))
    return "\n\n".join(said) or "Nothing, and nothing was skipped."
