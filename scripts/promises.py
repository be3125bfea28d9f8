#!/usr/bin/env python3
"""Attacks what the library promises, portion after portion, and adds up what came of it.

What they found since it was last published is in promises/state.json of the target directory; several runs may go on at
once. --publish adds it to docs/measurements/promises.json, from which every machine goes on, and writes promises.md
from that.

Ends with 0 if nothing was wrong, 1 if anything ever was of what is published or was found since, 2 if nothing could be
run.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Nothing is left among the scripts.
sys.dont_write_bytecode = True
import promises_report
import promises_state

ROOT = pathlib.Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "docs" / "measurements" / "promises.json"
KINDS = ("transfers", "kills", "attacks", "fuzz", "mutations")
# A decoder is fuzzed for so long at a time, and for longer where nothing else is done.
FUZZED_S = 60
ONLY_FUZZED_S = 600
# The longest that a portion may take.
PATIENCE_S = 2400


class Wrong(Exception):
    """Nothing can be run."""


@dataclasses.dataclass
class Portion:
    """Some tests of one program, or a target of the fuzzer."""

    kind: str
    name: str
    program: str
    filters: tuple = ()
    user: str = ""

    def title(self):
        return f"{self.kind}, {self.name}" + (f", {self.user}" if self.user else "")


def portions(targets):
    tests = (
        ("transfers", "own memory", "mapper", ("not_one_byte", "lacking::without")),
        ("kills", "at random", "death", ("at_random",)),
        ("attacks", "freezes and loops", "hostile", ("--include-ignored", "alone::", "freezes::", "loops::")),
        ("kills", "at points", "death", ("--exact", "points::at_every_point")),
        ("kills", "at points of spaces", "death", ("points::at_every_point_of_spaces",)),
        ("kills", "at points, driven", "death", ("points::at_every_point_with_a_thread",)),
        ("transfers", "messages", "remapped", ("no_message",)),
        ("attacks", "scribbles and forgeries", "hostile", ("scribblers", "forgers", "givers_of_bad", "all_of_them")),
    )
    users = ("root", "nobody") if os.getuid() == 0 else (pwd.getpwuid(os.getuid()).pw_name,)
    listed = [Portion(*test, user) for test in tests for user in users]
    return listed + [Portion("fuzz", target, "fuzz") for target in targets]


def build(names, place):
    """The test programs, by name."""
    def built(flags):
        command = ["cargo", "test", "--locked", "--workspace", "--no-run", "--message-format=json", *flags]
        environment = dict(os.environ, CARGO_TARGET_DIR=str(place.target))
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise Wrong("the tests do not build")
        messages = map(json.loads, done.stdout.splitlines())
        return {m["target"]["name"]: m["executable"] for m in messages if m.get("executable")}

    names = [name for name in names if name != "fuzz"]
    programs = built([flag for name in names for flag in ("--test", name)]) if names else {}
    # The next build may take its place.
    return {name: keep(program, place, name) for name, program in programs.items()}


def keep(program, place, name):
    kept = place.programs / name
    shutil.copy(program, kept)
    kept.chmod(0o755)
    return kept


def as_user(user, environment):
    """The words that go before a command, and its environment."""
    if user == "root" or os.getuid() != 0:
        return [], dict(os.environ, **environment)
    group = str(pwd.getpwnam(user).pw_gid)
    environment = dict(environment, PATH="/usr/local/bin:/usr/bin:/bin", HOME=environment["TMPDIR"])
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"], environment


def run_tests(portion, program, run):
    """Runs tests: their figures, what was wrong, and what was skipped."""
    with tempfile.TemporaryDirectory(prefix="pf", dir="/tmp", ignore_cleanup_errors=True) as home:
        home = pathlib.Path(home)
        figures, skips = home / "figures", home / "skips"
        for file in (figures, skips):
            file.touch()
        for path in (home, figures, skips):
            shutil.chown(path, portion.user)
        environment = {"TMPDIR": str(home), "PINFOLD_FIGURES": str(figures), "PINFOLD_SKIP_LOG": str(skips),
                       "PINFOLD_RUN": str(run), "RUST_BACKTRACE": "0"}
        before, environment = as_user(portion.user, environment)
        # One at a time: two attacks at once have each the other's load.
        command = [*before, str(program), "--test-threads=1", *portion.filters]
        code, said = call(command, environment, home)
        lines = [line.split() for line in figures.read_text().splitlines()]
        found = [(words[0], dict(word.split("=", 1) for word in words[1:])) for words in lines]
        wrong = [] if code == 0 else [tail(said)]
        if not code and not re.search(r"^test result: ok\. [1-9]", said, re.M):
            wrong = [f"no test ran: {tail(said)}"]
        return found, wrong, skips.read_text().splitlines()


def run_fuzz(portion, seconds, is_built=True):
    """Fuzzes a decoder: as above."""
    environment = dict(os.environ, PINFOLD_FUZZ_BUILT="1" if is_built else "")
    code, said = call([str(ROOT / "scripts" / "fuzz.sh"), str(seconds), portion.name], environment, ROOT)
    if code == 77:
        return [], [], [f"fuzz: {tail(said)}"]
    done = re.search(r"^Done (\d+) runs in (\d+) second", said, re.M)
    values = {"way": portion.name, "count": done[1] if done else "0", "seconds": done[2] if done else "0"}
    wrong = [] if code == 0 and done else [tail(said)]
    return [("fuzz", values | {"crashes": str(len(wrong))})], wrong, []


# The processes that run now, each with a group of its own.
RUNNING = set()


def end_all():
    for pid in list(RUNNING):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def call(command, environment, where):
    process = subprocess.Popen(command, cwd=where, env=environment, stdin=subprocess.DEVNULL, text=True,
                               errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    RUNNING.add(process.pid)
    try:
        said, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        return 1, f"took more than {PATIENCE_S} s"
    finally:
        RUNNING.discard(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def tail(said):
    failed = re.findall(r"^---- .* ----\n(?:.*\n){1,6}", said, re.M) or said.splitlines()[-6:]
    return "\n".join(failed).strip()


def add(state, portion, figures):
    for kind, values in figures:
        way = values.pop("way").replace("_", " ")
        entries = state["found"].setdefault({"gaps": "attacks"}.get(kind, kind), {})
        # Tests may give several lines to a way.
        entry = entries.setdefault(f"{way}|{portion.user}", {"runs": 0})
        entry["runs"] += 1
        promises_state.add_values(entry, values)


def read_mutations(place):
    """How the mutations of the list stand: by what became of them, and how many of that is of these very sources."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import mutants

    listed = mutants.read_lists()
    results = mutants.read_results(pathlib.Path(place))
    stand = {"listed": len(listed), "current": 0, "not run": 0, "survivors": []}
    for mutation in listed:
        result = results.get(mutation.title)
        if result is None:
            stand["not run"] += 1
            continue
        stand[result["verdict"]] = stand.get(result["verdict"], 0) + 1
        stand["current"] += result["digest"] == mutation.digest()
        if result["verdict"] == "survived":
            stand["survivors"].append(mutation.title)
    return stand


def machine():
    def words(*command):
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()

    info = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", info, re.M)
    commit = words("git", "rev-parse", "--short", "HEAD") or "no commit"
    if words("git", "status", "--porcelain", "--untracked-files=no", "--", "crates", "tests", "fuzz"):
        commit += " and changes"
    return {"commit": commit, "processor": model[1] if model else os.uname().machine,
            "processors": len(os.sched_getaffinity(0)), "kernel": os.uname().release}


def is_wrong(state):
    found = state["found"]
    bad = sum(entry.get(key, 0) for kind in found.values() if isinstance(kind, dict)
              for entry in kind.values() if isinstance(entry, dict) for key in ("wrong", "names", "crashes"))
    stand = found.get("mutations", {})
    return bool(state["wrong"] or bad or stand.get("survived") or stand.get("broken"))


def forget(place, kinds):
    """What was found of kinds before is not counted any more: tests or sources have changed since."""
    def without(state):
        for kind in kinds:
            state["found"].pop(kind, None)
            state["spent_s"].pop(kind, None)
            state["wrong"] = [wrong for wrong in state["wrong"] if not wrong["portion"].startswith(kind)]
            for on in state["on"]:
                on.get("counts", {}).pop(kind, None)

    with place.changing() as state:
        without(state)
        if place.published.exists():
            published = place.read_published()
            without(published)
            promises_state.write(place.published, published)


def work(options, place):
    kinds = set(options.only or KINDS)
    targets = re.findall(r'^name = "(?!pinfold-fuzz")(.*)"$', (ROOT / "fuzz" / "Cargo.toml").read_text(), re.M)
    listed = portions(targets)
    if unknown := kinds - set(KINDS) - {portion.name for portion in listed}:
        names = ", ".join([*KINDS, *dict.fromkeys(portion.name for portion in listed)])
        raise Wrong(f"no kind and no portion of that name: {', '.join(sorted(unknown))}; there are {names}")
    listed = [portion for portion in listed if kinds & {portion.kind, portion.name}]
    if "mutations" in kinds:
        stand = read_mutations(options.mutants or place.target / "mutants")
        # Where none was tried, what is published stands.
        if stand["not run"] < stand["listed"]:
            with place.changing() as state:
                state["found"]["mutations"] = stand | {"commit": machine()["commit"]}
    if options.forget:
        forget(place, {portion.kind for portion in listed})
    if options.minutes:
        run(listed, options, place)


def run(listed, options, place):
    """Portions in turn until the time is over."""
    here = machine()
    programs = build({portion.program for portion in listed}, place)
    if any(portion.kind == "fuzz" for portion in listed):
        # With it all are built; whatever keeps that from being done keeps them all.
        first = next(portion for portion in listed if portion.kind == "fuzz")
        if (skipped := run_fuzz(first, 1, is_built=False)[2]):
            listed = [portion for portion in listed if portion.kind != "fuzz"]
            note(place, first, here, [], [], skipped, 0)
    fuzzed_s = ONLY_FUZZED_S if all(portion.kind == "fuzz" for portion in listed) else FUZZED_S
    end = time.monotonic() + 60 * options.minutes
    at = place.all()["run"]

    def one(portion):
        number = begin(place)
        begun, load = time.monotonic(), os.getloadavg()[0]
        if portion.kind == "fuzz":
            left = int(end - begun)
            found, wrong, skipped = run_fuzz(portion, min(fuzzed_s, max(5, left)))
        else:
            found, wrong, skipped = run_tests(portion, programs[portion.program], number)
        took = time.monotonic() - begun
        reached = note(place, portion, here, found, wrong, skipped, took, load)
        left = max(0, int(end - time.monotonic()))
        said = f"{'WRONG' if wrong else 'ok'} after {took:.0f} s; {reached}"
        print("\n".join([f"[{left // 60}:{left % 60:02} left] {portion.title()}: {said}", *wrong]), flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.at_once) as threads:
        while listed and time.monotonic() < end:
            # Decoders do not disturb each other; attacks and kills would.
            batch = [listed[at % len(listed)]]
            while len(batch) < min(options.at_once, len(listed)) and all(it.kind == "fuzz" for it in batch):
                batch.append(listed[(at + len(batch)) % len(listed)])
            batch = batch if all(it.kind == "fuzz" for it in batch) else batch[:1]
            at += len(batch)
            if len(batch) == 1:
                one(batch[0])
                continue
            going = [threads.submit(one, portion) for portion in batch]
            try:
                for done in going:
                    done.result()
            except BaseException:
                end_all()
                raise


def begin(place):
    """The number of a portion, from which its tests draw."""
    with place.changing() as state:
        # Whoever else goes on from what is published has other numbers.
        state.setdefault("seed", int.from_bytes(os.urandom(4)) << 16)
        state["run"] += 1
        return state["seed"] + state["run"]


def note(place, portion, here, found, wrong, skipped, took, load=None):
    """Adds what a portion has found; how far its kind is."""
    with place.changing() as state:
        state.setdefault("begun", promises_state.now())
        if load is not None and any(kind == "gaps" for kind, _ in found):
            loads = [*state["load"], load]
            state["load"] = [min(loads), max(loads)]
        key = "seconds" if portion.kind == "fuzz" else "count"
        count = sum(float(values.get(key, 0)) for _, values in found)
        promises_state.add_commit(state, here | {"counts": {portion.kind: promises_state.whole(count)}})
        add(state, portion, found)
        state["wrong"] += [promises_state.failure(portion.title(), here, said) for said in wrong]
        for line in skipped:
            said = f"{portion.user}: {line}" if portion.user else line
            state["skipped"][said] = state["skipped"].get(said, 0) + 1
        state["spent_s"][portion.kind] = state["spent_s"].get(portion.kind, 0) + took
        state["until"] = promises_state.now()
    return promises_report.reached(place.all(), portion.kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, metavar="N", help="until then portions are begun (10)")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"{', '.join(KINDS)}, or a portion of these")
    parser.add_argument("--forget", action="store_true", help="begin anew, with what --only names or with all")
    parser.add_argument("--publish", action="store_true", help="add it to docs/measurements/promises.json, and write promises.md")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="decoders that are fuzzed at once (1)")
    parser.add_argument("--json", action="store_true", help="print all that was found")
    parser.add_argument("--target", default=ROOT / "target", help="the target directory (target)")
    parser.add_argument("--mutants", help="where mutants.sh has its results (mutants/ in there)")
    options = parser.parse_args()
    place = promises_state.Place(options.target, PUBLISHED)
    # Whoever ends this ends what it runs, also where it is not to hear of interrupts.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="pinfold-promises.", dir="/tmp") as programs:
            place.programs = pathlib.Path(programs)
            place.programs.chmod(0o755)
            work(options, place)
    except (Wrong, OSError) as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("what is done is kept", file=sys.stderr)
    state = place.publish() if options.publish else place.all()
    report = promises_report.report(state)
    if options.publish:
        PUBLISHED.with_suffix(".md").write_text(report)
    print(json.dumps(state, indent=1) if options.json else report)
    sys.exit(1 if is_wrong(state) else 0)


if __name__ == "__main__":
    main()
