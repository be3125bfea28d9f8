#!/usr/bin/env python3
"""Checks that each public type of the library has an example in its documentation.

The types are those that crates/pinfold/src/lib.rs makes public by `pub use self::{...}`, or defines itself, and those of
its public modules; what is behind the feature `internals` or `#[doc(hidden)]` is left out. Each needs a block of code in
the documentation of the type itself that the documentation tests compile and run: no `ignore`, `no_run`, `text` or the
like.

Ends with 0 if all have one, 1 if one has not.
"""

import argparse
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = "crates/pinfold/src"

# Types of another crate that the library makes public, and where they are.
ELSEWHERE = {"copy::Algorithm": "crates/pinfold-sys/src"}

TYPE = r"(?:struct|enum|trait|type|union) (\w+)"
# A block of code that is compiled, run, and expected to end well.
RUN = re.compile(r"```(rust|edition\d+|,|\s)*$")


def leaves(tree, path=()):
    """The paths of a use tree, each with the name that it gets: `a::{b, c as d}` is (a, b): b and (a, c): d."""
    tree = tree.strip()
    if tree.endswith("}"):
        head, inside = tree[:-1].split("{", 1)
        path += tuple(part for part in head.split("::") if part and part != "self")
        depth, part = 0, ""
        for letter in inside + ",":
            depth += (letter == "{") - (letter == "}")
            if letter == "," and depth == 0:
                yield from leaves(part, path) if part.strip() else ()
                part = ""
            else:
                part += letter
        return
    named, _, other = tree.partition(" as ")
    path += tuple(part for part in named.strip().split("::") if part != "self")
    yield path, (other or path[-1]).strip()


def is_hidden(before):
    """Whether the attributes above an item hide it: `internals` is asked for, or it is `doc(hidden)`."""
    asked = re.search(r'feature = "internals"', before) and not re.search(r'not\(feature = "internals"\)', before)
    return bool(asked) or "doc(hidden)" in before


def attributes_above(text, at):
    """The attributes on the lines right above an offset."""
    above = re.search(r"((?:^#\[[^\n]*\n)*)\Z", text[:at], re.M)
    return above.group(1)


def made_public(file):
    """The (path, name) of each type that a module makes public by `pub use`, and the names that it defines itself."""
    text = file.read_text()
    for use in re.finditer(r"^pub use ([^;]+);", text, re.M):
        if not is_hidden(attributes_above(text, use.start())):
            for path, name in leaves(re.sub(r"\s+", " ", use[1])):
                # Functions and modules have small letters, constants large ones alone.
                if name[0].isupper() and not (name.isupper() and len(name) > 1):
                    yield path, name
    for own in re.finditer(rf"^pub {TYPE}", text, re.M):
        yield (own[1],), own[1]


def public_modules(library):
    text = (library / "lib.rs").read_text()
    for module in re.finditer(r"^pub mod (\w+);", text, re.M):
        above = attributes_above(text, module.start())
        # A module that is there under `doc` alone has no types that a program can use.
        if not is_hidden(above) and "doctest" not in above and not re.search(r"\btest\b", above):
            yield module[1]


def documentation(lines, at):
    """The lines of documentation above a line, without their slashes; attributes may stand between."""
    above, depth = [], 0
    while at > 0:
        at -= 1
        line = lines[at].strip()
        if line.startswith("///"):
            above.append(line[3:].removeprefix(" "))
        elif line.startswith(("#[", "//")) or line.endswith(("]", ",", "(")) and not line.startswith("}"):
            continue
        else:
            break
    return above[::-1]


def has_example(documented):
    inside = False
    for line in documented:
        if line.startswith("```"):
            if not inside and RUN.match(line):
                return True
            inside = not inside
    return False


def definitions(folder, name):
    """The files and lines below a folder, or in the file of that name, where a public type is defined."""
    files = sorted(folder.rglob("*.rs")) if folder.is_dir() else []
    if folder.with_suffix(".rs").is_file():
        files.append(folder.with_suffix(".rs"))
    for file in files:
        if "tests" in file.parts or file.name.endswith("tests.rs"):
            continue
        lines = file.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.match(rf"pub (?:unsafe )?(?:struct|enum|trait|type|union) {name}\b", line):
                yield file, number, lines


def find(root, module, path):
    """Where the type of this path from a module lies: below as much of the path as has it, once."""
    library = root / LIBRARY
    whole = "::".join(module + path)
    if whole in ELSEWHERE:
        return list(definitions(root / ELSEWHERE[whole], path[-1]))
    folders = module + path[:-1]
    for depth in range(len(folders), -1, -1):
        folder = library.joinpath(*folders[:depth])
        found = list(definitions(folder, path[-1]))
        if found:
            return found
    return []


def check(root):
    """Every complaint, as a line; and how many types there are."""
    library, said, count = root / LIBRARY, [], 0
    rooms = [((), library / "lib.rs")]
    for module in public_modules(library):
        file = library / module / "mod.rs"
        rooms.append(((module,), file if file.is_file() else library / f"{module}.rs"))
    seen = set()
    for module, file in rooms:
        for path, name in made_public(file):
            shown = "::".join(("pinfold", *module, name))
            found = find(root, module, path)
            if len(found) != 1:
                where = " and ".join(f"{at.relative_to(root)}:{number + 1}" for at, number, _ in found) or "nowhere"
                said.append(f"{shown}: is defined {where}; have scripts/examples.py find it once")
                continue
            at, number, lines = found[0]
            if (at, number) in seen:
                continue
            seen.add((at, number))
            count += 1
            if not has_example(documentation(lines, number)):
                said.append(f"{at.relative_to(root)}:{number + 1}: {shown} has no example in its documentation")
    return said, count


def self_test():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        example = "/// It is.\n///\n/// ```\n/// assert!(true);\n/// ```\n#[derive(\n    Debug,\n)]\n"
        tree = {
            "lib.rs": '#[cfg(not(loom))]\npub use self::{\n    a::{\n        One,\n        b::{Two as Deux, CONSTANT, call},\n'
                      '    },\n};\n#[cfg(feature = "internals")]\npub use self::a::Inner;\n'
                      '#[cfg(not(feature = "internals"))]\npub mod c;\n#[cfg(feature = "internals")]\npub mod d;\n'
                      + example + "pub struct Own(u64);\n",
            "a/mod.rs": example + "pub enum One {}\npub struct Inner;\n",
            "a/b.rs": example + "pub trait Two: Copy {}\n", "a/tests.rs": "pub struct One;\n",
            "c.rs": example + "pub type Three = u8;\n#[doc(hidden)]\npub use self::x::Four;\n", "d.rs": "pub struct Five;\n",
            "z/mod.rs": "pub struct Two;\n",
        }
        for name, text in tree.items():
            (root / LIBRARY / name).parent.mkdir(parents=True, exist_ok=True)
            (root / LIBRARY / name).write_text(text)
        assert check(root) == ([], 4), check(root)
        for name, shown in [("lib.rs", "Own"), ("a/mod.rs", "One"), ("a/b.rs", "Deux"), ("c.rs", "c::Three")]:
            for worse in ("", "/// It is.\n", example.replace("```\n/// a", "```no_run\n/// a"),
                          example + "struct Other;\n\n", example.replace("```", "//")):
                (root / LIBRARY / name).write_text(tree[name].replace(example, worse))
                said, _ = check(root)
                assert len(said) == 1 and f"pinfold::{shown} has no example" in said[0], (name, worse, said)
            (root / LIBRARY / name).write_text(tree[name])
        (root / LIBRARY / "a/b.rs").write_text("")
        (root / LIBRARY / "z/mod.rs").write_text("")
        assert "pinfold::Deux: is defined nowhere" in check(root)[0][0], check(root)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--self-test", action="store_true", help="try this program on a small made-up tree")
    args = options.parse_args()
    if args.self_test:
        return self_test()
    said, count = check(ROOT)
    print("\n".join(said), end="\n" if said else "")
    if said:
        print(f"error: {len(said)} of {count} public types are without an example", file=sys.stderr)
        return 1
    print(f"each of the {count} public types has an example")
    return 0


if __name__ == "__main__":
    sys.exit(main())
