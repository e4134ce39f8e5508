"""File operations of the program inside a sandbox; paths can lead only to the sandbox's own files.

Each part of a path is opened separately, and links are refused, because untrusted commands can create links.
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
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise Refused(f"{path!r} is not a path below the work directory")
    return parts


def _walk(config: dict[str, Any], path: str, parts: list[str], *, make: bool = False) -> int:
    """Return a descriptor of the directory that `parts` lead to; links are refused, and `make` creates directories.

    Raises:
        Refused: there is no such directory, or a part is a link.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(config["home"], flags)
    for part in parts:
        try:
            if make:
                try:
                    os.mkdir(part, 0o755, dir_fd=folder)
                except FileExistsError:
                    pass
            below = os.open(part, flags, dir_fd=folder)
        except OSError as error:
            raise Refused(_why(path, error)) from None
        finally:
            os.close(folder)
        folder = below
    return folder


def _why(path: str, error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
        return f"{path!r} leads through a link or has another type than expected"
    return f"{path!r}: {os.strerror(error.errno or 0)}"


def read_file(config: dict[str, Any], request: dict[str, Any], out: Outgoing) -> None:
    """Write a plain file's content to `out`.

    Raises:
        Refused: there is no such plain file, or it is larger than the limit.
    """
    parts = _parts(request["path"])
    if not parts:
        raise Refused(f"{request['path']!r} is a directory")
    folder = _walk(config, request["path"], parts[:-1])
    try:
        file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise Refused(_why(request["path"], error)) from None
    finally:
        os.close(folder)
    with open(file, "rb", buffering=0) as opened:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise Refused(f"{request['path']!r} is not a plain file")
        if status.st_size > request["limit"]:
            raise Refused(
                f"{request['path']!r} has {status.st_size:,} bytes, more than the {request['limit']:,} allowed"
            )
        remaining = request["limit"]
        while remaining and (data := opened.read(min(remaining, PIECE))):
            out.write(data)
            remaining -= len(data)


def write_file(config: dict[str, Any], request: dict[str, Any], data: Incoming) -> None:
    """Replace a file by a new one, so that other hard links to the old file keep its content.

    Raises:
        Refused: the path leads through a link, or the file cannot be written.
    """
    parts = _parts(request["path"])
    if not parts:
        raise Refused(f"{request['path']!r} is a directory")
    folder = _walk(config, request["path"], parts[:-1], make=True)
    temporary = f".ludus-{os.getpid()}-{time.monotonic_ns()}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, 0o755 if request["executable"] else 0o644, dir_fd=folder)
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
        raise Refused(_why(request["path"], error)) from None
    finally:
        os.close(folder)


def list_files(config: dict[str, Any], request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of a directory, sorted by name.

    Raises:
        Refused: there is no such directory, or it has more than `MAX_ENTRIES`.
    """
    folder = _walk(config, request["path"], _parts(request["path"]))
    try:
        listing: list[dict[str, Any]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(listing) >= MAX_ENTRIES:
                    raise Refused(f"{request['path']!r} has more than {MAX_ENTRIES:,} entries")
                try:
                    about = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # a background command has removed it meanwhile
                    continue
                listing.append({
                    "name": entry.name, "kind": _KINDS.get(stat.S_IFMT(about.st_mode), "other"),
                    "size": about.st_size,
                    "executable": stat.S_ISREG(about.st_mode) and bool(about.st_mode & 0o100),
                })  # fmt: skip
        return sorted(listing, key=lambda entry: str(entry["name"]))
    finally:
        os.close(folder)


def snapshot(config: dict[str, Any], out: Any) -> None:
    """Write the work directory as a tar archive to `out`, an `Outgoing`.

    Raises:
        Refused: the files are larger than the disk, or a path is too long.
    """
    import tarfile  # imported here because few sandboxes need it and it would delay the start of all

    room = config["disk"]["bytes"]
    waiting = ["."]
    closed: list[tuple[str, int]] = []
    try:
        with tarfile.open(fileobj=out, mode="w|", bufsize=PIECE, format=tarfile.PAX_FORMAT) as tar:
            while waiting:
                name = waiting.pop()
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
                    waiting += [os.path.join(name, inner) for inner in sorted(os.listdir(path), reverse=True)]
    finally:
        for path, mode in reversed(closed):
            os.chmod(path, mode)


def restore(config: dict[str, Any], data: Any) -> None:
    """Replace the work directory's content by that of the tar archive in `data`, an `Incoming`."""
    import tarfile

    # Not the filter "data", which refuses links that lead outside: here they cannot leave the sandbox. Filters exist
    # since Python 3.11.4.
    options: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
    home = config["home"]
    clear(home)
    modes: dict[str, int] = {}
    with tarfile.open(fileobj=data, mode="r|", bufsize=PIECE) as tar:
        for member in tar:
            member.uid = member.gid = config["user"]
            if member.isdir():
                modes[member.name] = member.mode & 0o755
                member.mode = 0o700
            tar.extract(member, home, numeric_owner=True, **options)
    # Set modes last: files cannot be written into a directory that is not writable.
    for name, mode in reversed(modes.items()):
        os.chmod(os.path.join(home, name), mode)


def clear(path: str) -> None:
    """Remove the content of a directory, as far as possible.

    The content of subdirectories is moved up and removed from there, because a tree can be deeper than the limits of
    recursion and of path length.
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
    """Remove an entry after moving its subdirectories up to `top`; return how many have been moved up so far."""
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
