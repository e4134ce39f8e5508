"""The files of a workspace: made from a task, sent into the sandbox as a tar archive, and read back from one.

What comes back was made by the policy. So it is only ever parsed here, never written to this machine: names are keys of
a dictionary, links are text, and the sandbox has already left out pipes, sockets and devices and bounded the size.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import struct
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ludus.sandbox import Sandbox, SandboxFileError

EPOCH: Final = 1_704_067_200
"""The modification time of files that have no other one: 2024-01-01T00:00:00Z."""

_STORED: Final = 0xFFFF
"""The largest block that deflate stores without compression."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory or symbolic link.

    Attributes:
        kind: which of them it is.
        data: the content of a file, or the target of a link.
        mode: the permission bits.
        mtime: the modification time in seconds since 1970.
    """

    kind: Literal["file", "directory", "link"]
    data: bytes = b""
    mode: int = 0o644
    mtime: int = EPOCH


Tree = Mapping[str, Entry]
"""Entries by their path, relative to the workspace."""


def file(content: str | bytes, mode: int = 0o644, mtime: int = EPOCH) -> Entry:
    """Return a file."""
    return Entry("file", content.encode() if isinstance(content, str) else content, mode, mtime)


def directory(mode: int = 0o755) -> Entry:
    """Return a directory; only empty ones must be named."""
    return Entry("directory", mode=mode)


def link(target: str) -> Entry:
    """Return a symbolic link."""
    return Entry("link", target.encode(), 0o777)


def pack(tree: Tree, folder: str) -> bytes:
    """Return the tree as a tar archive, in a folder; the same tree gives the same bytes."""
    buffer = io.BytesIO()
    kinds = {"file": tarfile.REGTYPE, "directory": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        root = tarfile.TarInfo(folder)
        root.type, root.mode, root.mtime = tarfile.DIRTYPE, 0o755, EPOCH
        tar.addfile(root)
        for path in sorted(tree):
            entry = tree[path]
            member = tarfile.TarInfo(f"{folder}/{path}")
            member.type, member.mode, member.mtime = kinds[entry.kind], entry.mode, entry.mtime
            if entry.kind == "link":
                member.linkname = entry.data.decode()
                tar.addfile(member)
            elif entry.kind == "directory":
                tar.addfile(member)
            else:
                member.size = len(entry.data)
                tar.addfile(member, io.BytesIO(entry.data))
    return buffer.getvalue()


def unpack(archive: bytes, folder: str) -> Tree:
    """Return the tree in a folder of a tar archive that a sandbox has made; empty if the folder is not there."""
    tree: dict[str, Entry] = {}
    view = memoryview(archive)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            if not name.startswith(f"{folder}/"):
                continue
            path, mtime = name[len(folder) + 1 :], int(member.mtime)
            if member.isfile():
                content = bytes(view[member.offset_data : member.offset_data + member.size])
                tree[path] = Entry("file", content, member.mode & 0o7777, mtime)
            elif member.isdir():
                tree[path] = Entry("directory", b"", member.mode & 0o7777, mtime)
            elif member.issym():
                tree[path] = Entry("link", member.linkname.encode("utf-8", "surrogateescape"), 0o777, mtime)
            elif member.islnk():
                # The archive names the first of several hard links, which comes before the others.
                first = tree.get(member.linkname.removeprefix("./")[len(folder) + 1 :])
                tree[path] = first or Entry("file", b"", member.mode & 0o7777, mtime)
    return tree


async def read_tree(box: Sandbox, folder: str) -> Tree:
    """Return the files in a folder of a sandbox.

    Raises:
        SandboxFileError: they exceed the limit on disk, as sparse files do.
    """
    try:
        archive = (await box.snapshot()).data
        return await asyncio.to_thread(unpack, archive, folder)
    except tarfile.TarError as error:
        raise SandboxFileError(f"the files cannot be read: {error}") from None


def fingerprint(tree: Tree) -> str:
    """Return a hash of everything in a tree."""
    found = hashlib.sha256()
    for path in sorted(tree):
        entry = tree[path]
        head = f"{path}\0{entry.kind}\0{entry.mode:o}\0{entry.mtime}\0{len(entry.data)}\0"
        found.update(head.encode("utf-8", "surrogateescape") + entry.data)
    return found.hexdigest()[:16]


def deflated(data: bytes) -> bytes:
    """Return data as a raw deflate stream of stored blocks, whose bytes depend on no version of zlib."""
    blocks = [data[start : start + _STORED] for start in range(0, len(data), _STORED)] or [b""]
    return b"".join(
        struct.pack("<BHH", index == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for index, block in enumerate(blocks)
    )


def gzipped(data: bytes, mtime: int = 0) -> bytes:
    """Return data in the gzip format."""
    head = b"\x1f\x8b\x08\x00" + struct.pack("<I", mtime) + b"\x00\xff"
    return head + deflated(data) + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def zlibbed(data: bytes) -> bytes:
    """Return data in the zlib format."""
    return b"\x78\x01" + deflated(data) + struct.pack(">I", zlib.adler32(data))


def inflated(data: bytes, limit: int, wbits: int = zlib.MAX_WBITS) -> bytes | None:
    """Return the content of a zlib stream; None if it is broken or has more than `limit` bytes.

    Args:
        data: the stream.
        limit: the most bytes.
        wbits: as for `zlib.decompressobj`; 31 for the gzip format.
    """
    stream = zlib.decompressobj(wbits)
    try:
        content = stream.decompress(data, limit + 1)
    except zlib.error:
        return None
    return content if stream.eof and len(content) <= limit else None
