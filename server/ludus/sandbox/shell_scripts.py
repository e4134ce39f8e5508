"""Shell code that runs in containers, and parsers of its output."""

from __future__ import annotations

import io
import shlex
import stat
import tarfile
from typing import Final, Literal

from ludus.sandbox.core.errors import SandboxFileError
from ludus.sandbox.core.model import FileInfo, Limits

HOME: Final = "/box"
_THREAD_ADDRESSES: Final = 144 * 1024 * 1024
"""Addresses that a thread reserves for its stack and its heap without using them."""
PROGRAMS: Final = ("env", "cat", "head", "stat", "find", "grep", "tar", "chmod", "mkdir", "mktemp", "mv", "rm", "ls")
"""What an image must have besides `/bin/sh`."""
END_ALL: Final = "kill -9 -1"
IS_FULL: Final = f"stat -f -c '%a %d' {HOME} /tmp | grep -qE '^0 | 0$'"
WAIT: Final = f"{END_ALL} 2>/dev/null; N='\n'; echo; IFS= read -r line && eval \"$line\""
"""Wait for a line and run it. Before that, end what is left of the last command: the shell that should have ended it
ran as the same user, so the command may have tampered with it."""
FIRST_TO_GO: Final = "{ echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null"
"""Makes the kernel end the command first when memory is short, before the container's own shells."""
OVERHEAD_TASKS: Final = 2
"""Tasks that do not belong to the command: the container's first process, and the shell that starts the command."""


def limits(allowed: Limits, watched: bool = False) -> str:
    """Return shell code that sets a command's limits; if it is only watched, also that of each process's memory.

    The limit on processes is below the container's, so that a shell that ends them can still start.
    """
    processes = allowed.processes + OVERHEAD_TASKS
    memory = ""
    if watched:  # an engine without control groups has set none of these either
        addresses = (4 * allowed.memory + allowed.processes * _THREAD_ADDRESSES) // 1024
        memory = f"ulimit -v {addresses}; ulimit -n 256; ulimit -c 0; ulimit -l 64 2>/dev/null; "
    return (
        f"{memory}"
        f"ulimit -t {int(allowed.cpu_seconds) + 1}; ulimit -f {allowed.file_size // 512}; "
        f"{{ ulimit -u {processes} || ulimit -p {processes}; }} 2>/dev/null"
    )


def has_largest(allowed: Limits) -> str:
    """Return shell code that succeeds if a file has the largest size that the shell's limit allows."""
    largest = allowed.file_size // 512 * 512
    return f"find {HOME} /tmp -type f -size +{largest - 1}c 2>/dev/null | grep -q ."


def say(marker: bytes) -> str:
    """Return shell code that writes a mark to standard error."""
    return f"printf '{marker.decode().replace(chr(0), chr(92) + '0')}' >&2"


def quoted(word: str) -> str:
    """Quote a word for the shell on one line; line ends come from the variable N, which `WAIT` sets."""
    return '"$N"'.join(shlex.quote(part) for part in word.split("\n"))


def parts(path: str) -> list[str]:
    """Split a path of the work directory into names.

    Raises:
        SandboxFileError: the path leads outside.
    """
    names = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in names or "\0" in path:
        raise SandboxFileError(f"{path!r} is not a path below the work directory")
    return names


def no_links(path: str, *, last: bool = True) -> str:
    """Return shell code that exits with 61 if there is a link in a path. Nothing else runs meanwhile to create one."""
    names = parts(path)
    steps = ["./" + "/".join(names[: end + 1]) for end in range(len(names) if last else len(names) - 1)]
    checks = [f"[ ! -L {quoted(step)} ] || exit 61" for step in steps]
    return "; ".join([f"chmod 700 {HOME}", f"cd {HOME}", *checks])


CLEAR: Final = (
    'n=0; while [ -n "$(ls -A)" ] && [ $n -lt 1000 ]; do n=$((n+1)); '
    "find . -maxdepth 100 -type d ! -perm -700 -exec chmod 700 {} \\; ; "
    'find . -mindepth 100 -maxdepth 100 -type d -exec sh -c \'mv "$1" "$(mktemp -d ./.ludus-XXXXXX)"\' sh {} \\; ; '
    "find . -mindepth 1 -maxdepth 1 -exec rm -rf {} +; done"
)
"""Empties a directory. Content deeper than a hundred levels is moved up first, since the depth of `rm` is limited."""


UNPACK: Final = f"{CLEAR}; exec tar xof -"


def file_info(name: bytes, about: bytes) -> FileInfo:
    """Parse the output of `find` and `stat` about one entry of a directory."""
    mode_text, size = about.split()
    mode = int(mode_text, 16)
    names: dict[int, Literal["file", "directory", "link", "other"]] = {
        stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link",
    }  # fmt: skip
    kind = names.get(stat.S_IFMT(mode), "other")
    text = name.removeprefix(b"./").decode("utf-8", "surrogateescape")
    return FileInfo(text, kind, int(size), kind == "file" and bool(mode & 0o100))


def only_files(data: bytes, room: int) -> bytes:
    """Return the archive without pipes, sockets and devices, with directories that their owner can write to.

    Raises:
        SandboxFileError: the files are larger than `room` bytes.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as source, tarfile.open(fileobj=archive, mode="w") as target:
        for member in source:
            if member.isfile() or member.isdir() or member.issym() or member.islnk():
                room -= member.size
                if room < 0:
                    raise SandboxFileError("the files are larger than the limit on disk")
                if member.isdir():
                    member.mode |= 0o700
                target.addfile(member, source.extractfile(member) if member.isfile() else None)
    return archive.getvalue()
