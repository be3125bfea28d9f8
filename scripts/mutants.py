#!/usr/bin/env python3
"""Takes the checks of tests/mutations/*.toml out of the sources, one at a time: some test must fail for each.

One build has all mutations. In a copy of the sources each text that is found becomes a choice between itself and what
replaces it, by a variable of the environment, which the processes of a test inherit.

Ends with 0 if each mutation made a test fail, 1 if some did not, 2 if the list itself is wrong.
"""

import argparse
import ctypes
import dataclasses
import hashlib
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LISTS = ROOT / "tests" / "mutations"
VARIABLE = "PINFOLD_MUTANT"
SYS = "crates/pinfold-sys/src/"
KEYS = {"name", "file", "find", "within", "replace", "kind", "test", "also"}

# What the copy of pinfold-sys gets. getenv(3) neither allocates nor locks: a forked child may be the first to ask.
MODULE = """
pub mod mutant {
    use std::{ffi::CStr, sync::atomic::{AtomicU64, Ordering}};
    static CHOSEN: AtomicU64 = AtomicU64::new(u64::MAX);
    #[inline]
    pub fn on(number: u64) -> bool {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        number == if chosen == u64::MAX { choose() } else { chosen }
    }
    #[cold]
    #[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
    fn choose() -> u64 {
        let value = unsafe { libc::getenv(c"PINFOLD_MUTANT".as_ptr()) };
        let text = if value.is_null() { c"" } else { unsafe { CStr::from_ptr(value) } };
        let number = text.to_bytes().iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        CHOSEN.store(number, Ordering::Relaxed);
        number
    }
}
"""


class Wrong(Exception):
    """The list is."""


@dataclasses.dataclass
class Change:
    """A text of one file, and what replaces it."""

    file: str
    find: str
    replace: str
    kind: str
    within: str


@dataclasses.dataclass
class Mutation:
    area: str
    name: str
    changes: list
    tests: list

    @property
    def title(self):
        return f"{self.area}/{self.name}"

    @property
    def number(self):
        """The same whatever else is listed, so that a new entry does not change the copies of other files."""
        return zlib.crc32(self.title.encode()) + 1

    def digest(self):
        """Changes with the entry, and with what it changes."""
        whole = hashlib.sha256(repr(self).encode())
        for file in sorted({change.file for change in self.changes}):
            whole.update((ROOT / file).read_bytes())
        return whole.hexdigest()


def read_change(entry, title):
    kind = entry.get("kind", "expression")
    if kind not in ("expression", "statement", "always"):
        raise Wrong(f"{title}: no kind of change: {kind}")
    for key in ("file", "find", "replace"):
        if not isinstance(entry.get(key), str):
            raise Wrong(f"{title}: lacks {key}")
    find = entry["find"].strip()
    return Change(entry["file"], find, entry["replace"].strip(), kind, entry.get("within", "").strip())


def read_lists():
    mutations = []
    for path in sorted(LISTS.glob("*.toml")):
        try:
            entries = tomllib.loads(path.read_text())
        except tomllib.TOMLDecodeError as error:
            raise Wrong(f"{path.name}: {error}") from error
        if unknown := set(entries) - {"file", "test", "mutation"}:
            raise Wrong(f"{path.name}: unknown: {', '.join(sorted(unknown))}")
        common = {key: entries[key] for key in ("file", "test") if key in entries}
        for number, entry in enumerate(entries.get("mutation", []), 1):
            entry = common | entry
            title = f"{path.stem}/{entry.get('name', number)}"
            if unknown := set(entry) - KEYS:
                raise Wrong(f"{title}: unknown: {', '.join(sorted(unknown))}")
            tests = entry.get("test", entries.get("test", []))
            tests = [tests] if isinstance(tests, str) else tests
            if "name" not in entry or not tests:
                raise Wrong(f"{title}: lacks a name, or a test")
            changes = [read_change(part, title) for part in [entry, *(entry | also for also in entry.get("also", []))]]
            mutations.append(Mutation(path.stem, entry["name"], changes, tests))
    titles, numbers = [m.title for m in mutations], [m.number for m in mutations]
    for title, number in zip(titles, numbers):
        if titles.count(title) > 1 or numbers.count(number) > 1:
            raise Wrong(f"{title}: two of that name")
    return mutations


def place(change, text):
    """Where the found text begins."""
    begin, whole = 0, text
    if change.within:
        if (count := text.count(change.within)) != 1:
            raise Wrong(f"{change.file} has {count} times, not once: {change.within!r}")
        begin, whole = text.index(change.within), change.within
    if (count := whole.count(change.find)) != 1:
        raise Wrong(f"{change.file} has {count} times, not once: {change.find!r}")
    return begin + whole.index(change.find)


def spans_of(mutations):
    """By file: all changes as (begin, end, mutation, change); outer ones first."""
    files, wrong = {}, []
    for mutation in mutations:
        for change in mutation.changes:
            try:
                text = (ROOT / change.file).read_text()
                begin = place(change, text)
            except (OSError, Wrong) as error:
                wrong.append(f"{mutation.title}: {error}")
                continue
            spans = files.setdefault(change.file, [])
            spans.append((begin, begin + len(change.find), mutation, change))
    for spans in files.values():
        # What several mutations change always, a `const fn` into a function, is changed once.
        always = {(s[0], s[1], s[3].replace): s for s in spans if s[3].kind == "always"}
        spans[:] = [s for s in spans if s[3].kind != "always"] + list(always.values())
        spans.sort(key=lambda span: (span[0], -span[1]))
        for at, (begin, end, mutation, _) in enumerate(spans):
            for other in spans[at + 1 :]:
                if begin < other[0] < end < other[1]:
                    wrong.append(f"{mutation.title} and {other[2].title} overlap")
    if wrong:
        raise Wrong("\n".join(wrong))
    return files


def rewritten(text, spans, on):
    """The text with a choice at each span. Also says where, in the new text, which mutation is."""
    out, places = [], []

    def size():
        return sum(map(len, out))

    def emit(begin, end, inside):
        while inside:
            first = inside[0]
            out.append(text[begin : first[0]])
            within = [span for span in inside[1:] if span[0] < first[1]]
            inside = inside[1 + len(within) :]
            _, last, mutation, change = first
            at = size()
            if change.kind == "always":
                out.append(change.replace)
                begin = last
                continue
            expression = change.kind == "expression"
            out.append(f"{'(' if expression else ''}if {on}({mutation.number}) {{ {change.replace} }} else {{ ")
            emit(first[0], last, within)
            out.append(f" }}{')' if expression else ''}")
            places.append((at, size(), mutation))
            begin = last
        out.append(text[begin:end])

    emit(0, len(text), spans)
    return "".join(out), places


def write_changed(path, content):
    """A file that stays as it is keeps its time, so that cargo does not build it again."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def make_tree(tree, files):
    """Copies the sources, with all choices in them; says by file where they are."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    sources = [name for name in listed if name and (ROOT / name).is_file()]
    places = {}
    for name in sources:
        content = (ROOT / name).read_bytes()
        if name in files:
            on = "crate::mutant::on" if name.startswith(SYS) else "pinfold_sys::mutant::on"
            text, places[name] = rewritten(content.decode(), files[name], on)
            content = text.encode()
        if name == SYS + "lib.rs":
            content += MODULE.encode()
        write_changed(tree / name, content)
        shutil.copymode(ROOT / name, tree / name)
    for old in [path for path in tree.rglob("*") if path.is_file()]:
        if str(old.relative_to(tree)) not in sources:
            old.unlink()
    return places


def targets_of(mutations):
    return sorted({test.split()[0] for mutation in mutations for test in mutation.tests})


def build(tree, target, wanted, places):
    """Builds all test programs that are wanted: by name, which and where each runs."""
    flags = []
    for kind, flag in (("lib:", "--lib"), ("bin:", "--bins")):
        if any(name.startswith(kind) for name in wanted):
            flags.append(flag)
    for name in wanted:
        if ":" not in name:
            flags += ["--test", name.split("/")[-1]]
    command = ["cargo", "test", "--locked", "--workspace", "--no-run", "--message-format=json", *flags]
    environment = dict(os.environ, CARGO_TARGET_DIR=str(target))
    process = subprocess.Popen(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True)
    programs, broken = {}, False
    for line in process.stdout:
        message = json.loads(line)
        if message["reason"] == "compiler-message" and message["message"]["level"] == "error":
            broken = True
            print(message["message"]["rendered"], file=sys.stderr)
            blame(message["message"]["spans"], places)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            package = message["package_id"].split("#")[-1].split("@")[0]
            folder = pathlib.Path(message["manifest_path"]).parent
            package = package if package.startswith("pinfold") else folder.name
            name, kind = message["target"]["name"], message["target"]["kind"][0]
            program = (message["executable"], folder)
            if kind == "test":
                programs[f"{package}/{name}"] = program
                programs[name] = program if name not in programs else None
            else:
                programs[f"{kind}:{package if kind == 'lib' else name}"] = program
    if process.wait() != 0 or broken:
        raise Wrong("the copy with all mutations does not build")
    for name in wanted:
        if not programs.get(name):
            known = ", ".join(sorted(key for key, value in programs.items() if value))
            raise Wrong(f"no test program, or two, of the name {name}; there are {known}")
    return programs


def blame(spans, places):
    for span in spans:
        for name, found in places.items():
            if span["file_name"].endswith(name):
                for begin, end, mutation in found:
                    if begin <= span["byte_start"] <= end:
                        print(f"in the mutation {mutation.title}\n", file=sys.stderr)


def kill_all(process):
    """Ends what a test has started: its group, and whoever of it has left that and is now this process's."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            children = pathlib.Path("/proc/thread-self/children").read_text().split()
        except OSError:
            return
        for child in map(int, children):
            try:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        if not children:
            return


FAILED = re.compile(r"^test (\S+) .*FAILED$|^test result: FAILED", re.M)
RAN = re.compile(r"^running (\d+) tests?$", re.M)
PANIC = re.compile(r"panicked at (.*?):\n(.*)")


@dataclasses.dataclass
class Run:
    how: str
    """`passed`, `failed`, `hung`, `skipped` or `empty`."""
    said: str
    took: float


def run(test, programs, number, timeout):
    """Runs tests with a mutation chosen. Ends them as soon as one has failed."""
    name, *filters = test.split()
    program, folder = programs[name]
    with tempfile.TemporaryDirectory(prefix="pf", ignore_cleanup_errors=True) as temporary:
        os.chmod(temporary, 0o1777)
        skips = os.path.join(temporary, "skips")
        log = open(os.path.join(temporary, "log"), "w+")
        environment = dict(
            os.environ, TMPDIR=temporary, PINFOLD_SKIP_LOG=skips, CARGO_MANIFEST_DIR=str(folder), RUST_BACKTRACE="0",
            PROPTEST_DISABLE_FAILURE_PERSISTENCE="1",
        )
        environment.pop(VARIABLE, None)
        if number:
            environment[VARIABLE] = str(number)
        begun = time.monotonic()
        process = subprocess.Popen(
            [program, "--nocapture", *filters], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=log, start_new_session=True,
        )
        said, how = "", None
        os.set_blocking(process.stdout.fileno(), False)
        while how is None:
            left = begun + timeout - time.monotonic()
            if left <= 0:
                how = "hung"
            elif select.select([process.stdout], [], [], min(left, 0.2))[0]:
                if piece := process.stdout.read():
                    said += piece.decode(errors="replace")
            if how is None and FAILED.search(said):
                how = "failed"
            if how is None and (status := process.poll()) is not None:
                said += (process.stdout.read() or b"").decode(errors="replace")
                how = "passed" if status == 0 else "failed"
        took = time.monotonic() - begun
        kill_all(process)
        process.stdout.close()
        log.seek(0)
        errors = log.read()
        log.close()
        if how == "passed":
            if not sum(map(int, RAN.findall(said))):
                how = "empty"
            elif os.path.exists(skips) and os.path.getsize(skips):
                return Run("skipped", pathlib.Path(skips).read_text().splitlines()[0], took)
            return Run(how, "", took)
        failed = FAILED.search(said)
        panics = PANIC.findall(errors)
        where = failed.group(1) if failed and failed.group(1) else test
        why = "; ".join(f"{at}: {what}" for at, what in panics[:3]) or errors.strip().splitlines()[-1:]
        return Run(how, f"{where}: {why}", took)


class Unmutated:
    """How each test does as the sources are: it has to pass. Run when it is first asked for."""

    def __init__(self, programs, timeout):
        self.programs, self.timeout, self.runs = programs, timeout, {}

    def __getitem__(self, test):
        if test not in self.runs:
            # A busy machine gets three attempts.
            for _ in range(3):
                outcome = run(test, self.programs, 0, 10 * self.timeout)
                if outcome.how in ("passed", "skipped", "empty"):
                    break
            print(f"unmutated: {test}: {outcome.how} in {outcome.took:.1f} s {outcome.said}", flush=True)
            self.runs[test] = outcome
        return self.runs[test]


def attempt(mutation, programs, unmutated, timeout):
    """Which of its tests finds a mutation, as (verdict, why)."""
    skipped = ""
    for test in mutation.tests:
        before = unmutated[test]
        if before.how not in ("passed", "skipped"):
            return "broken", f"without a mutation, {test}: {before.how} {before.said}"
        outcome = run(test, programs, mutation.number, max(timeout, 3 * before.took))
        if outcome.how in ("failed", "hung"):
            return "killed", f"{outcome.how} after {outcome.took:.1f} s: {outcome.said}"
        if "skipped" in (outcome.how, before.how):
            skipped = outcome.said or before.said
    return ("skipped", skipped) if skipped else ("survived", "")


def minutes(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def chosen(mutations, options):
    if options.only:
        named = [m for m in mutations if any(only in (m.area, m.name, m.title) for only in options.only)]
        if not named:
            raise Wrong(f"no mutation and no area of that name: {', '.join(options.only)}")
        mutations = named
    if options.sample < 100:
        seed = options.seed if options.seed is not None else random.randrange(1 << 32)
        print(f"{options.sample} % at random: --sample {options.sample} --seed {seed}")
        count = max(1, len(mutations) * options.sample // 100)
        mutations = sorted(random.Random(seed).sample(mutations, count), key=lambda m: m.title)
    return mutations


def read_results(place):
    file = place / "results.json"
    return json.loads(file.read_text()) if file.exists() else {}


def write_results(place, results):
    fresh = place / f"results.{os.getpid()}"
    fresh.write_text(json.dumps(results, indent=1))
    fresh.replace(place / "results.json")


def work(options):
    everything = read_lists()
    files = spans_of(everything)
    mutations = chosen(everything, options)
    if options.list:
        for mutation in mutations:
            print(f"{mutation.title}  ({'; '.join(mutation.tests)})")
    if options.check:
        print(f"{len(everything)} mutations, each of whose texts is found once")
    if options.list or options.check:
        return 0

    place = pathlib.Path(options.target).resolve()
    tree = place / "tree"
    places = make_tree(tree, files)
    # Whatever is chosen, so that the next choice is built already.
    wanted = targets_of(everything if not options.only else mutations)
    programs = build(tree, options.build or place / "build", wanted, places)
    if options.build_only:
        return 0

    results = read_results(place)
    digests = {mutation.title: mutation.digest() for mutation in mutations}

    def is_known(mutation):
        known = results.get(mutation.title, {})
        return known.get("digest") == digests[mutation.title] and known["verdict"] == "killed"

    left = [m for m in mutations if options.again or not is_known(m)]
    unmutated = Unmutated(programs, options.timeout)
    begun = time.monotonic()
    for at, mutation in enumerate(left, 1):
        verdict, why = attempt(mutation, programs, unmutated, options.timeout)
        results[mutation.title] = {"digest": digests[mutation.title], "verdict": verdict, "why": why}
        # Another run may have written meanwhile.
        write_results(place, read_results(place) | {mutation.title: results[mutation.title]})
        spent = time.monotonic() - begun
        eta = minutes(spent / at * (len(left) - at))
        print(f"[{at}/{len(left)}, {eta} left] {verdict}: {mutation.title}", flush=True)
        if options.verbose and why:
            print(f"    {why}", flush=True)

    verdicts = {m.title: results[m.title] for m in mutations}
    by = {verdict: [title for title, result in verdicts.items() if result["verdict"] == verdict]
          for verdict in ("killed", "survived", "skipped", "broken")}
    if options.json:
        print(json.dumps({title: {"verdict": r["verdict"], "why": r["why"]} for title, r in verdicts.items()}, indent=1))
    for title in by["skipped"]:
        print(f"SKIPPED: {title}: {verdicts[title]['why']}")
    for title in by["survived"]:
        print(f"survived: {title}")
    for title in by["broken"]:
        print(f"broken: {title}: {verdicts[title]['why']}")
    failed = len(by["survived"]) + len(by["broken"])
    print(f"test result: {'FAILED' if failed else 'ok'}. {len(by['killed'])} passed; "
          f"{failed} failed; {len(by['skipped'])} ignored")
    return 2 if by["broken"] else 1 if by["survived"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", help="an area, a mutation, or AREA/MUTATION")
    parser.add_argument("--sample", type=int, default=100, metavar="PERCENT", help="some at random")
    parser.add_argument("--seed", type=int, help="which ones")
    parser.add_argument("--again", action="store_true", help="also those that are known to be found")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="when a test hangs (60)")
    parser.add_argument("--check", action="store_true", help="only see whether each text is found once")
    parser.add_argument("--list", action="store_true", help="only print which there are")
    parser.add_argument("--build-only", action="store_true", help="only see whether they build")
    parser.add_argument("--json", action="store_true", help="print what became of each, and why")
    parser.add_argument("--verbose", action="store_true", help="print what each test said")
    parser.add_argument("--target", default=ROOT / "target" / "mutants", help="where to work (target/mutants)")
    parser.add_argument("--build", help="where to build (build/ in there)")
    options = parser.parse_args()
    # Who loses its parent in a test becomes a child of this process: PR_SET_CHILD_SUBREAPER of prctl(2).
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    try:
        sys.exit(work(options))
    except Wrong as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
