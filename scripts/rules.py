#!/usr/bin/env python3
"""Checks CONTRIBUTING's rules on lines and files.

- A line of Rust has at most 100 columns, comments included; URLs and tables are excepted. Older comments are longer: how
  many such lines there may be is in LONG_LINES_MAX, which may only go down.
- A line of prose in a document has at most 120; tables, links and blocks of code are excepted.
- A source file has at most 500 lines; what has more today is in LONG_FILES.
- Outside of transport/ no code of the library asks which transport a peer has; only the rooms in which transports are
  made (CONNECTING) name one.
- A source file of crates/ and tests/ begins with a line of documentation (`//!`), behind attributes and the invariant of
  its unsafe code, if it has some.

Ends with 0 if all of them hold, 1 if one does not.
"""

import argparse
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUST_COLUMNS, PROSE_COLUMNS, FILE_LINES = 100, 120, 500

# Lines of Rust that are too long today. A change that shortens some lowers this.
LONG_LINES_MAX = 244

# Files that are too long today, with how long each may be. Each is to be cut in two; then its line here goes.
LONG_FILES = {
    "crates/pinfold/src/copy/sites/tests.rs": 520,  # what sites learn, by size and by reader
    "crates/pinfold/src/transport/tcp/bridge/receiving.rs": 504,  # from a connection to lanes and buffers
    "crates/pinfold/src/transport/tcp/bridge/sending.rs": 508,  # from lanes and buffers to a connection
    "scripts/mutants.py": 524,  # finding texts, building, running
    "tests/src/changes.rs": 559,  # each call that changes memory, and the ground that it changes
    "tests/tests/abandoned.rs": 648,  # receives that are given up, by way and by path
    "tests/tests/tcp/regions.rs": 518,  # regions of peers on other hosts
    "tests/tests/donated.rs": 509,  # bounds on memory that is given away
    "tests/tests/after_close.rs": 540,  # memory that outlives its giver
}

# The rooms of the library that make transports: configuration, listening, calling, greeting, going on after a break.
LIBRARY = "crates/pinfold/src/"
CONNECTING = (
    "transport/", "fuzzing", "endpoint/builder.rs", "worker/config.rs", "endpoint/handle/peers.rs", "worker/handshakes",
    "worker/connections", "worker/pending_peer.rs",
)

# What a program of ours writes is its business.
GENERATED = {"docs/measurements/promises.md"}


def files_below(root):
    """Every file of the tree, but what was built."""
    for at, folders, files in os.walk(root):
        built = "Cargo.toml" in files
        folders[:] = sorted(f for f in folders if not f.startswith(".") and not (built and f == "target"))
        for file in sorted(files):
            yield (pathlib.Path(at) / file).relative_to(root).as_posix()


def long_rust(lines):
    for number, line in enumerate(lines, 1):
        table = re.match(r"\s*//[/!]?\s*\|", line)
        if len(line) > RUST_COLUMNS and "://" not in line and not table:
            yield number, line


def long_prose(lines):
    code = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            code = not code
        excepted = code or line.startswith(("|", "    ")) and "|" in line or "://" in line or "](" in line
        if len(line) > PROSE_COLUMNS and not excepted:
            yield number, line


def asks_which_transport(lines):
    for number, line in enumerate(lines, 1):
        # The code of frames' words belongs to `wire`.
        code = line.split("//")[0].replace("tcp::frame", "")
        if re.search(r"\b(is_tcp|as_tcp|tcp::|Bridge\b)", code):
            yield number


def begins_well(lines):
    for line in lines:
        if line.strip() and not re.match(r"#!\[|//(?![/!])", line):
            return line.startswith("//!")
    return True


def check(root, long_lines_max=LONG_LINES_MAX, long_files=LONG_FILES):
    """Every complaint, as a line; and how many lines of Rust are too long."""
    said, long_lines, sizes = [], [], {}
    for file in files_below(root):
        if not file.endswith((".rs", ".py", ".sh", ".md")):
            continue
        lines = (root / file).read_text().splitlines()
        if file.endswith(".md"):
            if file not in GENERATED:
                said += [f"{file}:{number}: {len(line)} columns" for number, line in long_prose(lines)]
            continue
        sizes[file] = len(lines)
        if len(lines) > long_files.get(file, FILE_LINES):
            said.append(f"{file}: {len(lines)} lines; {long_files.get(file, FILE_LINES)} are allowed")
        if file.endswith(".rs"):
            long_lines += [f"{file}:{number}: {len(line)} columns" for number, line in long_rust(lines)]
            if file.startswith(LIBRARY) and not file.removeprefix(LIBRARY).startswith(CONNECTING):
                said += [f"{file}:{number}: names a transport" for number in asks_which_transport(lines)]
            if file.startswith(("crates/", "tests/")) and not begins_well(lines):
                said.append(f"{file}:1: does not begin with a line of documentation (//!)")
    for file in long_files:
        if sizes.get(file, 0) <= FILE_LINES:
            said.append(f"{file}: is not too long any more; take it out of LONG_FILES in scripts/rules.py")
    if len(long_lines) > long_lines_max:
        said.append(f"{len(long_lines)} lines of Rust have more than {RUST_COLUMNS} columns; {long_lines_max} may "
                    "have (scripts/rules.py --long lists them)")
    return said, long_lines


def self_test():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        good = {
            "Cargo.toml": "", "target/x.rs": "x" * 200, "crates/a/src/target/mod.rs": "//! Good.\n",
            "crates/a/src/lib.rs": "#![allow(unsafe_code)]\n\n//! Good.\n// https://" + "x" * 100 + "\n/// | "
                                   + "x" * 100 + "\n" + "x" * 100 + "\n",
            "a.md": "```\n" + "x" * 130 + "\n```\n| " + "x" * 130 + "\n" + "é" * 120 + "\n[a](" + "b" * 130 + ")\n",
            "scripts/a.py": "\n" * 500,
        }
        for name, text in good.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        assert check(root, 0, {}) == ([], []), check(root, 0, {})
        bad = {
            "crates/a/src/target/mod.rs": "//! " + "x" * 97 + "\n", "a.md": "x" * 121 + "\n",
            "scripts/a.py": "\n" * 501, "crates/a/src/lib.rs": "use x;\n",
        }
        good[LIBRARY + "worker/a.rs"] = "//! tcp::a\nuse wire::tcp::frame;\n"
        good[LIBRARY + "worker/connections/a.rs"] = "//! A.\nuse transport::tcp::Bridge;\n"
        bad[LIBRARY + "worker/a.rs"] = "//! A.\nuse transport::tcp::Connection;\n"
        for name in good.keys() - set(bad) | {LIBRARY + "worker/a.rs"}:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(good[name])
        assert check(root, 0, {}) == ([], []), check(root, 0, {})
        for name, text in bad.items():
            (root / name).write_text(text)
            assert len(check(root, 0, {})[0]) == 1, name
            (root / name).write_text(good[name])
        assert len(check(root, 0, {"scripts/a.py": 700})[0]) == 1
        (root / "scripts/a.py").write_text("\n" * 600)
        assert check(root, 0, {"scripts/a.py": 700})[0] == []


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--self-test", action="store_true", help="try this program on a small made-up tree")
    options.add_argument("--long", action="store_true", help="list every line of Rust that is too long")
    args = options.parse_args()
    if args.self_test:
        return self_test()
    said, long_lines = check(ROOT)
    if args.long:
        print("\n".join(long_lines))
        return 0
    print("\n".join(said), end="\n" if said else "")
    if said:
        print(f"error: {len(said)} things are not as CONTRIBUTING.md has them", file=sys.stderr)
        return 1
    if len(long_lines) < LONG_LINES_MAX:
        print(f"LONG_LINES_MAX in scripts/rules.py can be lowered to {len(long_lines)}.")
    print(f"the rules hold, but for {len(long_lines)} lines and {len(LONG_FILES)} files that are longer than they say")
    return 0


if __name__ == "__main__":
    sys.exit(main())
