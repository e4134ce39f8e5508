"""Git repositories as files: written for a task, and read from what a policy left.

Both sides are in Python: writing one takes a millisecond, while each git command takes several, and no program of the
policy's (a hook, a pager, an alias) has a part in reading one. The hash of each object is checked, so that an object is
what its name says. See https://git-scm.com/docs/gitformat-pack and gitformat-index.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ludus.server.authoring.workspace.files import Entry, Tree, file, inflated, zlibbed

_LARGEST: Final = 4 * 2**20
_MOST_BYTES: Final = 32 * 2**20
"""The bytes of all objects that are read; beyond, everything reads as missing."""
_MOST_COMMITS: Final = 2000
_MOST_PACKED: Final = 20_000
_DEEPEST: Final = 60
_KINDS: Final = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_HASH: Final = re.compile(r"[0-9a-f]{40}")
_CONFIG: Final = (
    "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
    "[user]\n\tname = Robin Hale\n\temail = robin@example.com\n"
)


class Person(NamedTuple):
    """An author or committer."""

    name: str
    email: str

    def __str__(self) -> str:
        return f"{self.name} <{self.email}>"


Files = Mapping[str, str]
"""The files of a commit by their paths. A path that ends in `.sh` is executable."""


class RepositoryWriter:
    """Collects the objects and references of a new repository."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self.refs: dict[str, str] = {}

    def _add(self, kind: str, content: bytes) -> str:
        whole = b"%s %d\0%s" % (kind.encode(), len(content), content)
        name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        self._objects[name] = whole
        return name

    def _tree(self, files: Files) -> str:
        rows: dict[str, tuple[str, str]] = {}
        below: dict[str, dict[str, str]] = {}
        for path, content in files.items():
            head, slash, rest = path.partition("/")
            if slash:
                below.setdefault(head, {})[rest] = content
            else:
                rows[head] = (_mode(path), self._add("blob", content.encode()))
        for name, inner in below.items():
            rows[name] = ("40000", self._tree(inner))
        ordered = sorted(rows.items(), key=lambda one: one[0] + ("/" if one[1][0] == "40000" else ""))
        return self._add(
            "tree", b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(hash) for name, (mode, hash) in ordered)
        )

    def commit(self, files: Files, parents: Sequence[str], message: str, author: Person, when: int) -> str:
        """Add a commit, and return its hash."""
        lines = [f"tree {self._tree(files)}", *(f"parent {one}" for one in parents)]
        lines += [f"author {author} {when} +0000", f"committer {author} {when} +0000", "", message.rstrip("\n") + "\n"]
        return self._add("commit", "\n".join(lines).encode())

    def entries(self, branch: str, files: Files, mtime: int) -> dict[str, Entry]:
        """Return the files of the repository and of its working tree.

        Args:
            branch: the branch that is checked out.
            files: its files.
            mtime: the modification time of all of them.
        """
        entries = {
            f".git/objects/{name[:2]}/{name[2:]}": file(zlibbed(content), 0o444, mtime)
            for name, content in self._objects.items()
        }
        entries |= {f".git/{ref}": file(f"{hash}\n", mtime=mtime) for ref, hash in self.refs.items()}
        entries[".git/HEAD"] = file(f"ref: refs/heads/{branch}\n", mtime=mtime)
        entries[".git/config"] = file(_CONFIG, mtime=mtime)
        entries[".git/index"] = file(self._index(files), mtime=mtime)
        for path, content in files.items():
            entries[path] = file(content, 0o755 if path.endswith(".sh") else 0o644, mtime)
        return entries

    def _index(self, files: Files) -> bytes:
        body = b"DIRC" + struct.pack(">II", 2, len(files))
        for path in sorted(files, key=str.encode):
            content = files[path].encode()
            mode = 0o100000 | int(_mode(path)[-3:], 8)
            # Without the times and numbers of the file itself, git compares its content.
            row = struct.pack(">10I", 0, 0, 0, 0, 0, 0, mode, 0, 0, len(content))
            row += bytes.fromhex(self._add("blob", content)) + struct.pack(">H", min(len(path.encode()), 0xFFF))
            row += path.encode()
            body += row + b"\0" * (8 - len(row) % 8)
        return body + hashlib.sha1(body, usedforsecurity=False).digest()


def _mode(path: str) -> str:
    return "100755" if path.endswith(".sh") else "100644"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit."""

    name: str
    tree: str
    parents: tuple[str, ...]
    author: str
    """Name and address, without the time."""
    authored: str
    """The time, as seconds and a zone."""
    message: str


class Repository:
    """Reads the repository in the folder `.git` of a tree. Everything that is broken reads as missing."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._room = _MOST_BYTES

    def _text(self, path: str) -> str:
        entry = self._tree.get(f".git/{path}")
        if entry is None or entry.kind != "file" or len(entry.data) > _LARGEST:
            return ""
        return entry.data.decode("utf-8", "replace")

    @cached_property
    def refs(self) -> Mapping[str, str]:
        """The hashes of branches and tags by their full names."""
        found: dict[str, str] = {}
        for line in self._text("packed-refs").splitlines():
            hash, _, name = line.partition(" ")
            if _HASH.fullmatch(hash) and name.startswith("refs/"):
                found[name] = hash
        for path in self._tree:
            if path.startswith(".git/refs/"):
                text = self._text(path[5:]).strip()
                if _HASH.fullmatch(text):
                    found[path[5:]] = text
        return found

    @property
    def branches(self) -> Mapping[str, str]:
        """The hashes of the local branches by their names."""
        prefix = "refs/heads/"
        return {name.removeprefix(prefix): hash for name, hash in self.refs.items() if name.startswith(prefix)}

    @property
    def branch(self) -> str | None:
        """The branch that is checked out; None if there is none."""
        prefix, text = "ref: refs/heads/", self._text("HEAD").strip()
        return text.removeprefix(prefix) if text.startswith(prefix) else None

    @cached_property
    def _packed(self) -> Mapping[str, tuple[bytes, int]]:
        """The packs and offsets of packed objects, from the packs' index files of version 2."""
        found: dict[str, tuple[bytes, int]] = {}
        for path, entry in self._tree.items():
            pack = self._tree.get(path[:-4] + ".pack")
            if not (path.startswith(".git/objects/pack/") and path.endswith(".idx") and pack is not None):
                continue
            data = entry.data
            if data[:8] != b"\xfftOc\0\0\0\2" or len(data) < 1032:
                continue
            count = struct.unpack_from(">I", data, 1028)[0]
            if count > _MOST_PACKED or 1032 + count * 28 > len(data):
                continue
            for number in range(count):
                name = data[1032 + 20 * number : 1052 + 20 * number].hex()
                found[name] = (pack.data, struct.unpack_from(">I", data, 1032 + count * 24 + 4 * number)[0])
        return found

    def object(self, name: str, kind: str) -> bytes | None:
        """Return the content of an object of a kind (commit, tree, blob or tag); None if there is none."""
        found = self._load(name, 0)
        if found is None or found[0] != kind:
            return None
        whole = b"%s %d\0%s" % (kind.encode(), len(found[1]), found[1])
        return found[1] if hashlib.sha1(whole, usedforsecurity=False).hexdigest() == name else None

    def _load(self, name: str, depth: int) -> tuple[str, bytes] | None:
        self._room -= 200  # small objects take time, too
        if self._room < 0 or depth > _DEEPEST:
            return None
        entry = self._tree.get(f".git/objects/{name[:2]}/{name[2:]}")
        if entry is not None and entry.kind == "file":
            whole = inflated(entry.data, _LARGEST) or b""
            self._room -= len(whole)
            head, _, content = whole.partition(b"\0")
            return head.split(b" ")[0].decode("ascii", "replace"), content
        if name in self._packed:
            try:
                return self._from_pack(*self._packed[name], depth)
            except (IndexError, struct.error):
                return None
        return None

    def _from_pack(self, pack: bytes, start: int, depth: int) -> tuple[str, bytes] | None:
        if depth > _DEEPEST or self._room < 0:
            return None
        at = start
        byte = pack[at]
        kind, at = byte >> 4 & 7, at + 1
        while byte & 0x80:
            byte, at = pack[at], at + 1
        base: tuple[str, bytes] | None = None
        if kind == 6:
            byte, at = pack[at], at + 1
            distance = byte & 0x7F
            while byte & 0x80:
                byte, at = pack[at], at + 1
                distance = (distance + 1 << 7) | byte & 0x7F
            if not 0 < distance <= start:
                return None
            base = self._from_pack(pack, start - distance, depth + 1)
        elif kind == 7:
            base, at = self._load(pack[at : at + 20].hex(), depth + 1), at + 20
        data = _inflated_prefix(pack, at)
        if data is None:
            self._room -= _LARGEST
            return None
        self._room -= len(data)
        if kind in _KINDS:
            return _KINDS[kind], data
        content = None if base is None else _apply_delta(base[1], data)
        self._room -= len(content or b"")
        return None if base is None or content is None else (base[0], content)

    def commit(self, name: str) -> Commit | None:
        """Return a commit; None if there is none."""
        content = self.object(name, "commit")
        if content is None:
            return None
        head, _, message = content.decode("utf-8", "replace").partition("\n\n")
        lines = [line.partition(" ") for line in head.splitlines()]
        tree = next((value for key, _, value in lines if key == "tree"), "")
        author, _, authored = next((value for key, _, value in lines if key == "author"), "").partition("> ")
        parents = tuple(value for key, _, value in lines if key == "parent")
        return Commit(name, tree, parents, f"{author}>", authored, message)

    def target(self, ref: str) -> str | None:
        """Return the commit to which a branch or tag leads, through annotated tags; None if there is none."""
        name = self.refs.get(ref, "")
        for _ in range(5):
            content = self.object(name, "tag")
            if content is None:
                return name if self.object(name, "commit") is not None else None
            name = content.decode("utf-8", "replace").partition("\n")[0].removeprefix("object ")
        return None

    def history(self, name: str | None) -> list[Commit]:
        """Return a commit and its first parents, the newest first."""
        found: list[Commit] = []
        while name and len(found) < _MOST_COMMITS and (commit := self.commit(name)) is not None:
            found.append(commit)
            name = commit.parents[0] if commit.parents else None
        return found

    def ancestors(self, name: str | None) -> set[str]:
        """Return the hashes of a commit and of all commits that it leads to."""
        seen: set[str] = set()
        left = [name] if name else []
        while left and len(seen) < _MOST_COMMITS:
            one = left.pop()
            commit = self.commit(one) if one not in seen else None
            if commit is not None:
                seen.add(one)
                left += commit.parents
        return seen

    def files(self, commit: str | None) -> Mapping[str, bytes] | None:
        """Return the files of a commit by their paths; None if the commit cannot be read."""
        found = self.commit(commit) if commit else None
        files: dict[str, bytes] = {}
        return files if found is not None and self._collect(found.tree, "", files, 0) else None

    def _collect(self, tree: str, prefix: str, files: dict[str, bytes], depth: int) -> bool:
        content = self.object(tree, "tree")
        if content is None or depth > _DEEPEST:
            return False
        while content:
            head, _, rest = content.partition(b"\0")
            mode, _, name = head.partition(b" ")
            hash, content = rest[:20].hex(), rest[20:]
            path = prefix + name.decode("utf-8", "surrogateescape")
            if mode == b"40000":
                if not self._collect(hash, f"{path}/", files, depth + 1):
                    return False
                continue
            blob = self.object(hash, "blob")
            if blob is None or len(files) > _MOST_COMMITS:
                return False
            files[path] = blob if mode != b"120000" else b"link:" + blob
        return True


def _inflated_prefix(pack: bytes, at: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(memoryview(pack)[at:], _LARGEST + 1)
    except zlib.error:
        return None
    return content if stream.eof and len(content) <= _LARGEST else None


def _apply_delta(base: bytes, delta: bytes) -> bytes | None:
    """Return the object that a delta makes from another; None if it is broken or too large."""
    at = 0
    for _ in range(2):  # two sizes that are not needed
        while delta[at] & 0x80:
            at += 1
        at += 1
    parts: list[bytes] = []
    size = 0
    while at < len(delta):
        command, at = delta[at], at + 1
        if command & 0x80:
            numbers = []
            for bits in ((0, 1, 2, 3), (4, 5, 6)):
                value = 0
                for place, bit in enumerate(bits):
                    if command >> bit & 1:
                        value, at = value | delta[at] << 8 * place, at + 1
                numbers.append(value)
            part = base[numbers[0] : numbers[0] + (numbers[1] or 0x10000)]
        else:
            part, at = delta[at : at + command], at + command
        size += len(part)
        if size > _LARGEST or not command:
            return None
        parts.append(part)
    return b"".join(parts)
