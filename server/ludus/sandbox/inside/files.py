"""The files of a box, handled from inside it: whatever a path leads to, it is the box's own.

Every step of a path is opened by itself and refuses links, since links are made by what is not trusted.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from ludus.sandbox.inside.messages import PIECE, Incoming, Outgoing, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_ENTRIES = 10_000


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise Refused(f"{path!r} is not a path below the work directory")
    return parts


def _walk(config: dict[str, Any], path: str, parts: list[str], *, make: bool = False) -> int:
    """A descriptor of the directory that `parts` lead to; every step refuses links."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    here = os.open(config["home"], flags)
    for part in parts:
        try:
            if make:
                try:
                    os.mkdir(part, 0o755, dir_fd=here)
                except FileExistsError:
                    pass
            below = os.open(part, flags, dir_fd=here)
        except OSError as error:
            raise Refused(_why(path, error)) from None
        finally:
            os.close(here)
        here = below
    return here


def _why(path: str, error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
        return f"{path!r} leads through a link, or is not what was expected"
    return f"{path!r}: {os.strerror(error.errno or 0)}"


def read_file(config: dict[str, Any], asked: dict[str, Any], out: Outgoing) -> None:
    """Give out a plain file's content."""
    parts = _parts(asked["path"])
    if not parts:
        raise Refused(f"{asked['path']!r} is a directory")
    folder = _walk(config, asked["path"], parts[:-1])
    try:
        file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise Refused(_why(asked["path"], error)) from None
    finally:
        os.close(folder)
    with open(file, "rb", buffering=0) as opened:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise Refused(f"{asked['path']!r} is not a plain file")
        if found.st_size > asked["limit"]:
            raise Refused(f"{asked['path']!r} has {found.st_size:,} bytes, more than the {asked['limit']:,} allowed")
        left = asked["limit"]
        while left and (data := opened.read(min(left, PIECE))):
            out.write(data)
            left -= len(data)


def write_file(config: dict[str, Any], asked: dict[str, Any], data: Incoming) -> None:
    """Replace a file by a new one, so that what else was linked to the old one keeps its content."""
    parts = _parts(asked["path"])
    if not parts:
        raise Refused(f"{asked['path']!r} is a directory")
    folder = _walk(config, asked["path"], parts[:-1], make=True)
    temporary = f".ludus-{os.getpid()}-{time.monotonic_ns()}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, 0o755 if asked["executable"] else 0o644, dir_fd=folder)
        try:
            with open(file, "wb", buffering=0) as opened:
                while view := memoryview(data.read(PIECE)):
                    while view:
                        view = view[opened.write(view) :]
            os.replace(temporary, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(temporary, dir_fd=folder)
            raise
    except OSError as error:
        raise Refused(_why(asked["path"], error)) from None
    finally:
        os.close(folder)


def list_files(config: dict[str, Any], asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of a directory, by name."""
    folder = _walk(config, asked["path"], _parts(asked["path"]))
    try:
        found: list[dict[str, Any]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(found) >= MAX_ENTRIES:
                    raise Refused(f"{asked['path']!r} has more than {MAX_ENTRIES:,} entries")
                about = entry.stat(follow_symlinks=False)
                found.append({
                    "name": entry.name, "kind": _kind(about.st_mode), "size": about.st_size,
                    "executable": stat.S_ISREG(about.st_mode) and bool(about.st_mode & 0o100),
                })  # fmt: skip
        return sorted(found, key=lambda one: str(one["name"]))
    finally:
        os.close(folder)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    return kinds.get(stat.S_IFMT(mode), "other")


def snapshot(config: dict[str, Any], out: Any) -> None:
    """Give `out`, an `Outgoing`, the work directory as a tar archive, whose files are no larger than the disk."""
    import tarfile  # here, as few boxes need it, and every box would wait for it

    room = config["disk"]["bytes"]
    left = ["."]
    closed: list[tuple[str, int]] = []
    try:
        with tarfile.open(fileobj=out, mode="w|", bufsize=PIECE, format=tarfile.PAX_FORMAT) as tar:
            while left:
                name = left.pop()
                path = os.path.join(config["home"], name)
                try:
                    member = tar.gettarinfo(path, name)
                except OSError as error:
                    raise Refused(_why(name[:100], error)) from None
                if member is None or not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
                    continue
                room -= member.size
                if room < 0:
                    raise Refused("the files are larger than the limit on disk")
                needed = {tarfile.REGTYPE: 0o400, tarfile.DIRTYPE: 0o500}.get(member.type, 0)
                if member.mode & needed != needed:
                    os.chmod(path, member.mode | needed)
                    closed.append((path, member.mode))
                if member.isfile():
                    with open(path, "rb") as file:
                        tar.addfile(member, file)
                    continue
                tar.addfile(member)
                if member.isdir():
                    left += [os.path.join(name, inner) for inner in sorted(os.listdir(path), reverse=True)]
    finally:
        for path, mode in reversed(closed):
            os.chmod(path, mode)


def restore(config: dict[str, Any], data: Any) -> None:
    """Replace the work directory's content by that of an archive, which `data`, an `Incoming`, holds."""
    import tarfile

    # Not "data", which refuses links that lead outside: here they lead nowhere but into the box. New in 3.11.4.
    how: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
    home = config["home"]
    clear(home)
    modes: dict[str, int] = {}
    with tarfile.open(fileobj=data, mode="r|", bufsize=PIECE) as tar:
        for member in tar:
            member.uid = member.gid = config["user"]
            if member.isdir():
                modes[member.name] = member.mode & 0o755
                member.mode = 0o700
            tar.extract(member, home, numeric_owner=True, **how)
    # At last, as what is in a directory that nobody may change could not have been written.
    for name, mode in reversed(modes.items()):
        os.chmod(os.path.join(home, name), mode)


def clear(path: str) -> None:
    """Remove what is in a directory, as far as that is possible.

    What is found in a directory below is moved up and removed in its turn: trees that are deeper than a recursion, or a
    path, can go are easily made.
    """
    top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        moved = 0
        stuck: set[str] = set()
        while names := [name for name in os.listdir(top) if name not in stuck]:
            for name in names:
                try:
                    moved = _remove(top, name, moved)
                except OSError:
                    stuck.add(name)
    finally:
        os.close(top)


def _remove(top: int, name: str, moved: int) -> int:
    """Remove an entry, after what is in it was moved up; how many were moved up by now."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=top)
        return moved
    os.chmod(name, 0o700, dir_fd=top)
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    try:
        for inner in os.listdir(folder):
            if stat.S_ISDIR(os.stat(inner, dir_fd=folder, follow_symlinks=False).st_mode):
                os.chmod(inner, 0o700, dir_fd=folder)
                moved += 1
                os.rename(
                    inner, f".ludus-{os.getpid()}-{time.monotonic_ns()}-{moved}", src_dir_fd=folder, dst_dir_fd=top
                )
            else:
                os.unlink(inner, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)
    return moved
