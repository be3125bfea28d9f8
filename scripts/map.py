#!/usr/bin/env python3
"""Checks what the documents name between backticks: that each path is in the tree, and each name in the sources.

Paths are looked for from the root, from crates/ and from crates/pinfold/src. A `Type`, a `function`, a `Type::method` has to be
defined: `Type::method` in a file that has an `impl` of the type, or the type itself. Words of the kernel, of other
programs and of the language are in FOREIGN; a word that the sources have as a text ("eager") is a word of Pinfold's.
Commands are checked as far as they are the tree's own: `make X`, `scripts/X`, `cargo bench --bench X`, `pinfold X`.
Links of all documents to files have to lead there. ARCHITECTURE.md has to name each module of the library that is a
folder, in the first two levels.

Ends with 0 if all is there, 1 if something is not, 2 if this program was called wrongly.
"""

import argparse
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAP = "ARCHITECTURE.md"
LIBRARY = "crates/pinfold/src/"
BASES = ["", LIBRARY, "crates/"]
BYTES_MAX = {MAP: 25 * 1024}
DESIGN_BYTES_MAX = 12 * 1024
FOLDER_DEPTH = 2

# Names between backticks that are not Pinfold's: of the kernel, the C library, the language, other programs.
FOREIGN = set("""
    memcpy memmove realloc mincore ppoll poll epoll_pwait epoll_wait sendto sendmsg recvfrom recvmsg send recv
    process_vm_readv process_vm_writev membarrier io_uring_enter userfaultfd mlock munmap mremap shmat
    bbr reno nstat cldemote libfabric UCX
    EAGAIN EBADMSG EFAULT EINVAL ENOBUFS ENOENT ESRCH EPOLLET F_SEAL_FUTURE_WRITE F_SEAL_WRITE TCP_USER_TIMEOUT
    TCP_ZEROCOPY_RECEIVE SIGBUS SIGKILL FUTEX_WAKE_OP
""".split())

NAME = r"[A-Za-z_]\w*"
EXTENSIONS = (".rs", ".sh", ".py", ".md", ".toml", ".json", ".html", ".txt")


def files_below(root):
    """Every file of the tree, but what was built."""
    for at, folders, files in os.walk(root):
        built = "Cargo.toml" in files
        folders[:] = [f for f in folders if not f.startswith(".") and not (built and f == "target")]
        for file in files:
            yield (pathlib.Path(at) / file).relative_to(root).as_posix()


def expanded(text):
    """A path with braces as several."""
    found = re.search(r"\{([^{}]*)\}", text)
    if not found:
        return [text]
    return [one for part in found[1].split(",") for one in
            expanded(text[:found.start()] + part.strip() + text[found.end():])]


class Sources:
    """What the Rust sources define."""

    DEFINED = re.compile(
        rf"\b(?:fn|struct|enum|trait|union|type|const(?!\s+(?:fn|unsafe)\b)|static|mod|macro_rules!)\s+"
        rf"(?:mut\s+)?({NAME})")
    # Variants, fields and parameters: a name at the beginning of a line, or behind a brace, before what ends it.
    MEMBER = re.compile(rf"(?:^|[{{(,|])\s*(?:pub(?:\([^)]*\))?\s+)?({NAME})\s*(?=[,:({{}}]|=\s*[-\d\w]|$)", re.M)
    OWNER = re.compile(rf"\b(?:struct|enum|trait|union|type)\s+({NAME})|^[ \t]*(?:unsafe\s+)?impl\b[^{{;]*?\{{",
                       re.M)

    def __init__(self, root, files):
        self.defined, self.members, self.words, self.texts = set(), set(), set(), set()
        self.of = {}
        self.tree = set(files)
        for file in files:
            if not file.endswith(".rs"):
                continue
            text = (root / file).read_text(errors="replace")
            code = re.sub(r"//[^\n]*", "", text)
            self.texts |= set(re.findall(r'"([^"\\\n]{1,40})"', code))
            self.words |= set(re.findall(NAME, code))
            here = set(self.DEFINED.findall(code))
            members = set(self.MEMBER.findall(code))
            self.defined |= here
            self.members |= members
            owners = set()
            for found in self.OWNER.finditer(code):
                owners |= {found[1]} if found[1] else set(re.findall(NAME, found[0]))
            modules = [part for part in re.split(r"[/.]", file) if part not in ("rs", "mod", "src")]
            for owner in owners | set(modules[-2:]):
                self.of.setdefault(owner, set()).update(here | members)
        self.modules = {pathlib.PurePosixPath(f).stem for f in files if f.endswith(".rs")} | {
            part for f in files if f.endswith(".rs") for part in f.split("/")[:-1]}

    def has(self, name):
        """Whether a name is defined, or a word that the sources use as a text."""
        return name in self.defined or name in self.members or name in self.modules or name in self.texts or (
            name.isupper() and name in self.words)

    def has_path(self, names):
        """Whether the last of several names is one of the one before it."""
        owner, last = names[-2], names[-1]
        return last in self.of.get(owner, ()) or (owner in self.modules and last in self.modules)


def spans(text):
    """What stands between backticks, with its line; blocks of code are left out."""
    text = re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.M | re.S)
    for found in re.finditer(r"`([^`]+)`", text):
        yield text.count("\n", 0, found.start()) + 1, re.sub(r"\s+", " ", found[1]).strip()


class Check:
    def __init__(self, root):
        self.root = root
        self.files = set(files_below(root))
        self.folders = {str(parent) for f in self.files for parent in pathlib.PurePosixPath(f).parents}
        self.sources = Sources(root, self.files)
        makefile = root / "Makefile"
        self.targets = set(re.findall(r"^([\w-]+):", makefile.read_text(), re.M)) if makefile.exists() else set()

    def is_path(self, text):
        for one in expanded(text):
            if one.startswith("/") or one.startswith("$"):
                continue
            for base in BASES:
                full = base + one
                if full.rstrip("/") in self.folders or (not one.endswith("/") and full in self.files):
                    break
            else:
                return False
        return True

    def wrong(self, text):
        """What is wrong with a text between backticks, or nothing."""
        if text in FOREIGN or re.fullmatch(r"[\W\d_]+\w?|--?[\w-]+.*|.*\(\d\w?\)|.*[=+<>].*", text):
            return None
        if " " in text:
            return self.wrong_command(text.split())
        if "/" in text or text.endswith(EXTENSIONS):
            return None if self.is_path(text) or ":" in text else "is no path in the tree"
        if text in self.folders:
            return None
        name = re.sub(r"\(.*\)$|!$", "", text)
        names = name.split("::")
        if not all(re.fullmatch(NAME, part) for part in names):
            return None
        if all(part in FOREIGN for part in names[:1]) and len(names) > 1:
            return None
        if len(names) > 1:
            return None if self.sources.has_path(names) else "is not defined"
        return None if self.sources.has(name) else "is neither defined nor in FOREIGN of scripts/map.py"

    def wrong_command(self, words):
        if words[0] == "make" and words[1] not in self.targets:
            return "is no target of the Makefile"
        if words[0].startswith("scripts/") and words[0] not in self.files:
            return "is no script"
        if words[0] == "cargo":
            for option, after in zip(words, words[1:]):
                if option == "--bench" and not any(f.endswith(f"benches/{after}.rs") for f in self.files):
                    return "names no benchmark"
        if words[0] == "pinfold" and re.fullmatch("[a-z]+", words[1]) and not re.search(
                rf"^    {words[1].capitalize()}\(Box<", (self.root / "crates/pinfold-cli/src/cli.rs").read_text(), re.M):
            return "is no command"
        return None

    def run(self):
        """Every complaint, as a line."""
        said = []
        designs = sorted(f for f in self.files if re.fullmatch(r"docs/design/[^/]+\.md", f))
        for file in [MAP] + designs:
            text = (self.root / file).read_text()
            limit = BYTES_MAX.get(file, DESIGN_BYTES_MAX)
            if len(text.encode()) > limit:
                said.append(f"{file}: {len(text.encode())} bytes; at most {limit} are allowed")
            for line, span in spans(text):
                if reason := self.wrong(span):
                    said.append(f"{file}:{line}: `{span}` {reason}")
        for file in sorted(f for f in self.files if f.endswith(".md")):
            text = (self.root / file).read_text()
            for found in re.finditer(r"\]\(([^)#\s]+)(#[^)\s]*)?\)", text):
                there = os.path.normpath(os.path.join(os.path.dirname(file), found[1]))
                if "://" not in found[1] and there not in self.files and there not in self.folders:
                    line = text.count("\n", 0, found.start()) + 1
                    said.append(f"{file}:{line}: the link to {found[1]} leads nowhere")
        map_text = (self.root / MAP).read_text()
        named = {one.rstrip("/") for _, span in spans(map_text) for one in expanded(span)}
        for folder in sorted(self.folders):
            inner = folder.removeprefix(LIBRARY)
            is_module = f"{folder}/mod.rs" in self.files or "/" not in inner and f"{folder}.rs" not in self.files
            if folder.startswith(LIBRARY) and is_module and inner.count("/") < FOLDER_DEPTH:
                if not any(name == inner or name.startswith(inner + "/") for name in named):
                    said.append(f"{MAP}: says nothing of the folder {folder}")
        return said


def self_test():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        tree = {
            "Cargo.toml": "", "Makefile": "test: ## x\n", "target/old.rs": "fn built() {}",
            LIBRARY + "lib.rs": "mod ring; pub enum Path { Eager, Cma { left: u64 } }",
            LIBRARY + "link/ring.rs": """
                // fn only_said() {}
                pub struct Ring<T> { room: T }
                impl<T> Ring<T> { pub const ROOM: u32 = 1; pub fn push(&self) { say("eager") } }
            """,
            LIBRARY + "other.rs": "pub struct Other; impl Other { pub fn pop(&self) {} }",
            "docs/design/a.md": "`Ring` and [the map](../../ARCHITECTURE.md)\n",
            MAP: "`link/ring.rs` `link/` `crates/pinfold/src/lib.rs` `link/{ring,ring}.rs` `Ring::push` `Ring::ROOM` "
                 "`Path::Eager` `Path::Cma` `Other` `push` `room` `eager` `make test` `/proc/self` `--x` `membarrier(2)` "
                 "`ring::Ring` `left`\n```\n`No::such`\n```\n",
        }
        for name, text in tree.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        assert Check(root).run() == [], Check(root).run()
        for broken in ["`link/rong.rs`", "`Ring::pop`", "`Rong`", "`only_said`", "`built`", "`make tost`", "`rong/`",
                       "`link/{ring,rong}.rs`", "`Path::Egger`", "[x](gone.md)", "`x.rs`", "`push_away()`"]:
            (root / MAP).write_text(tree[MAP] + broken + "\n")
            assert len(Check(root).run()) == 1, f"{broken}: {Check(root).run()}"
        (root / MAP).write_text(tree[MAP] + "x" * 25 * 1024)
        assert len(Check(root).run()) == 1
        (root / MAP).write_text("`lib.rs`\n")
        assert Check(root).run() == [f"{MAP}: says nothing of the folder {LIBRARY}link"], Check(root).run()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--self-test", action="store_true", help="try this program on a small made-up tree")
    if options.parse_args().self_test:
        return self_test()
    check = Check(ROOT)
    said = check.run()
    print("\n".join(said), end="\n" if said else "")
    if said:
        print(f"error: {len(said)} things are not as the documents say", file=sys.stderr)
        return 1
    print(f"{MAP} has {(ROOT / MAP).stat().st_size} bytes; all that the documents name is there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
