#!/usr/bin/env python3
"""Draws which file of a crate uses which, and finds the circles: files of which each leads to every other.

A file uses another where a `use`, or a path within the code, leads to something that is defined there; a name that is
handed on (`pub use`) counts for the file that defines it, not for the one that hands it on. Tests, comments and texts do
not count. Methods are not followed: a call by `self.` shows in no path, so files that share a type by `impl` blocks
alone are in no circle for that. The steps of the engine are functions for that reason.

Ends with 0 if no circle has more than LIMIT files, 1 if one has, 2 if the sources cannot be read.
"""

import argparse
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "crates" / "pinfold" / "src"

# The largest circle of today; it may shrink only. The goal is GOAL.
LIMIT = 3
GOAL = 3

TEST_FILES = re.compile(r"(^|/)(tests|model_tests)(\.rs$|/)")
NAME = r"[A-Za-z_]\w*"


def blanked(code):
    """Code without comments, texts and characters, of the same length."""
    pattern = re.compile(
        r"""//[^\n]*                                        # a comment
          | /\*.*?\*/                                       # another
          | \b[bc]?r(\#*)".*?"\1                            # a raw text
          | [bc]?"(?:\\.|[^"\\])*"                          # a text
          | b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^\\'])'           # a character; a lifetime has no second mark
        """, re.X | re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), code)


def closing(code, start):
    """Where the item that begins at `start` ends: behind its braces, or its semicolon."""
    depth = 0
    for at in range(start, len(code)):
        if code[at] in "{([":
            depth += 1
        elif code[at] in "})]":
            depth -= 1
            if depth == 0 and code[at] == "}":
                return at + 1
        elif code[at] == ";" and depth == 0:
            return at + 1
    return len(code)


def without_tests(code):
    """Code without the items that are compiled for tests alone."""
    while found := re.search(r"#\[cfg\(\s*(?:test|all\([^\]]*\btest\b[^\]]*\))\s*\)\]", code):
        code = code[:found.start()] + code[closing(code, found.end()):]
    return code


def split_top(text):
    """The parts of a list, by the commas that are in no braces."""
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return parts + [text[begin:]]


def leaves(tree, before=()):
    """Each path of a `use`, with the name that it binds."""
    tree = tree.strip()
    if not tree:
        return
    if "{" in tree:
        head, inner = tree.split("{", 1)
        path = before + tuple(part.strip() for part in head.split("::") if part.strip())
        for part in split_top(inner.rsplit("}", 1)[0]):
            yield from leaves(part, path)
        return
    path, _, alias = tree.partition(" as ")
    path = before + tuple(part.strip() for part in path.split("::") if part.strip())
    if path[-1] == "self" and len(path) > 1:
        path = path[:-1]
    yield path, alias.strip() or path[-1]


class Module:
    def __init__(self, path, file, code):
        self.path, self.file = path, file
        self.children = set()
        self.functions = set(re.findall(rf"\bfn\s+({NAME})", code))
        self.bound = {}
        self.globs = []
        uses = re.compile(r"\buse\s+([^;]+);")
        self.uses = []
        for found in uses.finditer(code):
            handed_on = re.search(r"\bpub(\([^)]*\))?\s*$", code[:found.start()]) is not None
            for leaf, name in leaves(re.sub(r"\s+", " ", found[1])):
                self.uses.append((leaf, handed_on))
                if leaf[-1] == "*":
                    self.globs.append(leaf[:-1])
                elif name != "_":
                    self.bound[name] = leaf
        self.code = uses.sub(" ", code)


class Crate:
    def __init__(self, root):
        self.modules = {}
        for file in sorted(root.rglob("*.rs")):
            name = file.relative_to(root).as_posix()
            if TEST_FILES.search(name):
                continue
            path = tuple(name.removesuffix(".rs").split("/"))
            if path[-1] in ("mod", "lib", "main"):
                path = path[:-1]
            self.modules[path] = Module(path, name, without_tests(blanked(file.read_text())))
        if () not in self.modules:
            raise SystemExit(f"circles: no lib.rs in {root}")
        for path in self.modules:
            if path and path[:-1] in self.modules:
                self.modules[path[:-1]].children.add(path[-1])

    def resolve(self, path, names, seen=frozenset(), inside=False):
        """The module that defines what a path leads to, and whether that is the module itself; nothing for another
        crate's. `inside` says that the path goes on from a module, and does not begin in its scope."""
        if (path, names, inside) in seen:
            return None
        seen = seen | {(path, names, inside)}
        for at, name in enumerate(names):
            module = self.modules[path]
            rest = names[at + 1:]
            if name == "crate":
                path = ()
            elif inside and not rest and name in module.functions:
                # Also where the module binds another one of the same name.
                return path, False
            elif name == "self":
                pass
            elif name == "super":
                path = path[:-1]
            elif name in module.children and (rest or name not in module.bound):
                path = path + (name,)
            elif name in module.bound and module.bound[name][0] != name:
                return self.resolve(path, module.bound[name] + rest, seen)
            else:
                for glob in module.globs:
                    there = self.resolve(path, glob, seen)
                    if there and there[1] and (name in self.modules[there[0]].bound or
                                               name in self.modules[there[0]].children):
                        return self.resolve(there[0], (name,) + rest, seen, True)
                return (path, False) if inside else None
            inside = True
            if path not in self.modules:
                return None
        return path, True

    def edges(self):
        """Which file uses which others."""
        graph = {module.file: set() for module in self.modules.values()}

        def note(module, found):
            if found and self.modules[found[0]].file != module.file:
                graph[module.file].add(self.modules[found[0]].file)

        for path, module in self.modules.items():
            for leaf, handed_on in module.uses:
                if leaf[-1] == "*":
                    if not handed_on:
                        note(module, self.resolve(path, leaf[:-1]))
                    continue
                found = self.resolve(path, leaf)
                # To name a module is no use of it; what is used of it shows below.
                if found and not found[1] and not handed_on:
                    note(module, found)
            for found in re.finditer(rf"(?<![\w:.]){NAME}(?:\s*::\s*{NAME})+", module.code):
                names = tuple(part.strip() for part in found[0].split("::"))
                if names[0] in ("crate", "self", "super") or names[0] in module.children:
                    note(module, self.resolve(path, names))
                elif names[0] in module.bound:
                    there = self.resolve(path, (names[0],))
                    if there and there[1]:
                        note(module, self.resolve(there[0], names[1:], inside=True))
        return graph


def circles(graph):
    """The strongly connected components of more than one file, the largest first (Tarjan, 1972)."""
    number, low, stack, on_stack, found = {}, {}, [], set(), []
    for begin in sorted(graph):
        if begin in number:
            continue
        work = [(begin, iter(sorted(graph[begin])))]
        number[begin] = low[begin] = len(number)
        stack.append(begin)
        on_stack.add(begin)
        while work:
            node, nexts = work[-1]
            for other in nexts:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    part = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    if len(part) > 1:
                        found.append(sorted(part))
    return sorted(found, key=lambda part: (-len(part), part))


def dot(graph, found):
    """The graph in the language of Graphviz: a box a folder, what is in a circle in red."""
    circle = {file: at for at, part in enumerate(found) for file in part}
    folders = {}
    for file in sorted(graph):
        folders.setdefault(file.rpartition("/")[0] or ".", []).append(file)
    lines = ["digraph modules {", "  rankdir=LR; node [shape=box, fontsize=10];"]
    for at, (folder, files) in enumerate(folders.items()):
        lines.append(f'  subgraph cluster_{at} {{ label="{folder}";')
        for file in files:
            colour = ", color=red" if file in circle else ""
            lines.append(f'    "{file}" [label="{file.rpartition("/")[2]}"{colour}];')
        lines.append("  }")
    for file in sorted(graph):
        for other in sorted(graph[file]):
            both = file in circle and circle.get(other) == circle[file]
            lines.append(f'  "{file}" -> "{other}"{" [color=red]" if both else ""};')
    return "\n".join(lines + ["}"]) + "\n"


SELF_TEST = {
    "lib.rs": "mod a; mod b; mod c; mod d; mod e; mod f; mod h; pub use self::a::One; pub use b::Two;",
    # One and two need each other, by a name that the root hands on, and by a path in the code.
    "a/mod.rs": "mod inner; pub use inner::Deep; pub struct One(crate::Two);",
    "a/inner.rs": "use super::super::c::{self, Three as Other}; pub struct Deep(Other); fn f() { c::three() }",
    "b.rs": "pub struct Two; fn f(x: &crate::One) -> crate::a::Deep { todo!() }",
    # A comment, a text, a test and a method are no uses, nor is the name of a module.
    "c.rs": """
        use crate::d;
        // crate::a::One
        pub struct Three; pub fn three() { let s = "crate::a::One"; let r = r#"crate::b::Two"#; let c = '"'; }
        #[cfg(test)] mod tests { use crate::a::Deep; fn f() { let _ = crate::b::Two; } }
        fn after(&self) { self.four(); std::mem::drop(()); }
    """,
    # A function of a module goes before another module that it names alike.
    "f.rs": "use crate::{d as g, h::g as other}; fn f() { other() }",
    "h.rs": "use crate::d as g; pub fn g() { g::four(); }",
    # Three in a row, through a glob and an alias of a module.
    "d.rs": "use crate::e::*; pub struct Four;",
    "e.rs": "use crate::{c as other, d as fourth}; pub fn five() { other::three(); fourth::Four; }",
    "tests.rs": "use crate::{a::One, b::Two};",
}


def self_test():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        for name, code in SELF_TEST.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(code)
        graph = Crate(root).edges()
        expected = {
            "lib.rs": set(), "a/mod.rs": {"b.rs"}, "a/inner.rs": {"c.rs"}, "b.rs": {"a/mod.rs", "a/inner.rs"},
            "c.rs": set(), "d.rs": {"e.rs"}, "e.rs": {"c.rs", "d.rs"},
            "f.rs": {"h.rs"}, "h.rs": {"d.rs"},
        }
        assert graph == expected, f"edges: {graph}"
        found = circles(graph)
        assert found == [["a/mod.rs", "b.rs"], ["d.rs", "e.rs"]], f"circles: {found}"
        (root / "c.rs").write_text("pub struct Three(crate::b::Two); pub fn three() {}")
        found = circles(Crate(root).edges())
        assert found == [["a/inner.rs", "a/mod.rs", "b.rs", "c.rs"], ["d.rs", "e.rs"]], f"circles: {found}"
        assert '"d.rs" -> "e.rs" [color=red];' in dot(graph, circles(graph))
    large = {str(at): {str(at + 1)} for at in range(5000)} | {"5000": {"0"}}
    assert [len(part) for part in circles(large)] == [5001]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--all", action="store_true", help="print every circle, not the largest alone")
    options.add_argument("--dot", metavar="FILE", help="write the graph for Graphviz (dot -Tsvg FILE), to - for output")
    options.add_argument("--self-test", action="store_true", help="try this program on a small made-up tree")
    options.add_argument("sources", nargs="?", type=pathlib.Path, default=SOURCES, help="the src folder of a crate")
    args = options.parse_args()
    if args.self_test:
        return self_test()
    graph = Crate(args.sources).edges()
    found = circles(graph)
    if args.dot:
        text = dot(graph, found)
        sys.stdout.write(text) if args.dot == "-" else pathlib.Path(args.dot).write_text(text)
        return 0
    sizes = [len(part) for part in found]
    print(f"{len(graph)} files, {sum(map(len, graph.values()))} uses, {len(found)} circles: {sizes}; the goal is {GOAL}")
    for part in found if args.all else found[:1]:
        print(f"{len(part)} files in a circle:")
        print("\n".join(f"  {file}" for file in part))
    largest = max(sizes, default=0)
    if largest > LIMIT:
        print(f"error: the largest circle has {largest} files, and {LIMIT} are allowed. Take out of it what need not be "
              "there: `scripts/circles.py --dot` shows which uses make it.", file=sys.stderr)
        return 1
    if largest < LIMIT:
        print(f"The limit in scripts/circles.py can be lowered to {largest}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
