"""What was found of the promises: in the repository, and here since that was published.

docs/measurements/promises.json is what was published. promises/state.json of the target directory is what was found on
this machine since then, and nothing else: what is published is added to whatever the repository has by then, so that
several machines may go on at once. Sums add up, the greatest of two stays, and of lists the last values.
"""

import contextlib
import copy
import datetime
import fcntl
import json
import os
import pathlib

# What becomes of the values of many portions; whatever is not listed is a greatest value.
SUMMED = {"runs", "count", "wrong", "kept", "copied", "heard", "names", "took_us", "seconds", "crashes"}
LISTED = {"longest_us", "unexplained_us", "median_us"}
# As many values of a list are kept, failures, and commits.
VALUES_MAX = 32
WRONG_MAX = 40
COMMITS_MAX = 60
SAID_MAX = 600


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def empty():
    return {"run": 0, "found": {}, "wrong": [], "skipped": {}, "spent_s": {}, "load": [], "on": []}


def add_values(entry, values):
    """Adds what one portion found to what is known of its way."""
    for key, value in values.items():
        value = float(value)
        if key in LISTED:
            entry[key] = (entry.get(key, []) + [round(value)])[-VALUES_MAX:]
            key = f"most_{key}"
        elif key in SUMMED:
            entry[key] = whole(entry.get(key, 0) + value)
            continue
        entry[key] = whole(max(entry.get(key, 0), value))


def whole(value):
    return int(value) if value == int(value) else value


def merged(one, other):
    """Both together; of the mutations, which are no sum, those of the other."""
    total = copy.deepcopy(one)
    total["run"] += other["run"]
    for kind, entries in other["found"].items():
        if kind == "mutations":
            total["found"][kind] = copy.deepcopy(entries)
            continue
        for name, entry in entries.items():
            known = total["found"].setdefault(kind, {}).setdefault(name, {})
            for key, value in entry.items():
                if isinstance(value, list):
                    known[key] = (known.get(key, []) + value)[-VALUES_MAX:]
                elif key in SUMMED:
                    known[key] = whole(known.get(key, 0) + value)
                else:
                    known[key] = max(known.get(key, 0), value)
    total["wrong"] = (total["wrong"] + other["wrong"])[-WRONG_MAX:]
    for key in ("skipped", "spent_s"):
        for name, value in other[key].items():
            total[key][name] = whole(round(total[key].get(name, 0) + value, 1))
    if loads := total["load"] + other["load"]:
        total["load"] = [min(loads), max(loads)]
    for on in other["on"]:
        add_commit(total, on)
    for key, choose in (("begun", min), ("until", max)):
        if times := [state[key] for state in (one, other) if key in state]:
            total[key] = choose(times)
    return total


def add_commit(state, on):
    """Counts by the commit and the machine that they come from; those of the oldest are one in the end."""
    def same(known):
        return all(known.get(key) == on.get(key) for key in ("commit", "processor", "processors", "kernel"))

    known = next(filter(same, state["on"]), None)
    if known is None:
        state["on"].append(copy.deepcopy(on))
    else:
        for kind, count in on.get("counts", {}).items():
            counts = known.setdefault("counts", {})
            counts[kind] = whole(counts.get(kind, 0) + count)
    while len(state["on"]) > COMMITS_MAX:
        oldest = state["on"].pop(0)
        into = state["on"][0]
        into["commit"] = f"{oldest['commit'].split(' ')[0]} to {into['commit'].split(' ')[-1]}"
        for kind, count in oldest.get("counts", {}).items():
            counts = into.setdefault("counts", {})
            counts[kind] = whole(counts.get(kind, 0) + count)


def failure(portion, here, said):
    on = {key: here[key] for key in ("commit", "processor", "processors", "kernel")}
    return {"portion": portion, "when": now(), "on": on, "load": round(os.getloadavg()[0], 1), "said": said[:SAID_MAX]}


class Place:
    """Where the states are, and the test programs where every user reaches them."""

    def __init__(self, target, published):
        self.target = pathlib.Path(target).resolve()
        self.state = self.target / "promises" / "state.json"
        self.state.parent.mkdir(parents=True, exist_ok=True)
        self.published = published
        self.programs = None

    @contextlib.contextmanager
    def changing(self):
        """What was found here, to be changed: no other run has it meanwhile."""
        with open(self.state.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self.read()
            yield state
            write(self.state, state)

    def read(self):
        return json.loads(self.state.read_text()) if self.state.exists() else empty()

    def read_published(self):
        return json.loads(self.published.read_text()) if self.published.exists() else empty()

    def all(self):
        return merged(self.read_published(), self.read())

    def publish(self):
        """Adds what was found here to what is published, and begins anew here."""
        with self.changing() as state:
            total = merged(self.read_published(), state)
            write(self.published, total)
            state.clear()
            state.update(empty())
        return total


def write(file, state):
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".fresh")
    fresh.write_text(lines(state) + "\n")
    fresh.replace(file)


def lines(value, indent=""):
    """As JSON, one way a line: what a commit changes is to be seen."""
    if isinstance(value, dict) and any(isinstance(inner, dict) for inner in value.values()):
        inner = [f"{indent} {json.dumps(key)}: {lines(value[key], indent + ' ')}" for key in value]
        return "{\n" + ",\n".join(inner) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        return "[\n" + ",\n".join(f"{indent} {json.dumps(inner)}" for inner in value) + f"\n{indent}]"
    return json.dumps(value)
