"""The content of a folder that an image is built from: an archive for the engine, and a hash that names the image."""

from __future__ import annotations

import os
import re
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

from docker.utils.build import exclude_paths

from ludus.sandbox.core.errors import SandboxImageError

CONTEXT_BYTES: Final = 512 * 2**20
"""The maximum size of a folder's files."""

DOCKERFILE: Final = "Dockerfile"
BUILD_NAME: Final = "localhost/ludus-build"
"""The name of built images; the tag is the hash of the folder's content."""

_IGNORE: Final = ".dockerignore"
_CHUNK: Final = 1 << 20
_FROM: Final = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_ARG: Final = re.compile(r"^\s*ARG\s+(\w+)(?:=(\S*))?\s*$", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")


@dataclass(slots=True)
class BuildContext:
    """An archive of a folder, in a file without a name, which is gone when it is closed."""

    folder: str
    archive: IO[bytes]
    image: str
    """The name and tag of the image that is built from it. Equal content has an equal tag."""
    bases: tuple[str, ...]
    """The images that the Dockerfile starts from."""

    @classmethod
    def read(cls, folder: str, limit: int = CONTEXT_BYTES) -> BuildContext:
        """Read a folder, without what its `.dockerignore` excludes.

        Raises:
            SandboxImageError: it is not a folder with a `Dockerfile`, it is larger than `limit` bytes, or it has an
                entry that is neither a file nor a folder nor a link.
        """
        root = Path(folder)
        if not root.is_dir():
            raise SandboxImageError(f"`build` names {folder}, which is not a folder")
        if not (root / DOCKERFILE).is_file():
            raise SandboxImageError(f"`build` names {folder}, which has no {DOCKERFILE}")
        archive: IO[bytes] = tempfile.TemporaryFile(prefix="ludus-build-")
        try:
            bases = tuple(dict.fromkeys(base_images((root / DOCKERFILE).read_text("utf-8", "replace"))))
            _pack(root, archive, limit)
            image = f"{BUILD_NAME}:{_hash(archive)}"
            archive.seek(0)
        except BaseException as error:
            archive.close()
            if isinstance(error, OSError | tarfile.TarError):
                raise SandboxImageError(f"the folder {folder} cannot be read: {error}") from None
            raise
        return cls(folder, archive, image, bases)

    def close(self) -> None:
        """Remove the archive."""
        self.archive.close()


def _pack(root: Path, archive: IO[bytes], limit: int) -> None:
    room = limit
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(exclude_paths(str(root), _ignored(root), dockerfile=DOCKERFILE)):
            path = root / name
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                raise SandboxImageError(
                    f"{path} is neither a file nor a folder nor a link, so no image can be built with it; remove "
                    f"it, or name it in {root / _IGNORE}"
                )
            member = tar.gettarinfo(path, arcname=name.replace(os.sep, "/"))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = 0
            if not member.isreg():
                tar.addfile(member)
                continue
            room -= member.size
            if room < 0:
                raise SandboxImageError(
                    f"the folder {root} has more than {limit} bytes, the maximum for building an image; list what the "
                    f"image does not need in {root / _IGNORE}"
                )
            with path.open("rb") as file:
                tar.addfile(member, file)


def _ignored(root: Path) -> list[str]:
    """Return the patterns of the folder's `.dockerignore`."""
    try:
        text = (root / _IGNORE).read_text("utf-8", "replace")
    except FileNotFoundError:
        return []
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _hash(archive: IO[bytes]) -> str:
    """Return a hash over the names, types, permissions and contents in an archive."""
    digest = sha256()
    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
        for member in tar:
            about = (member.name, member.type.decode(), oct(member.mode), member.linkname, str(member.size))
            digest.update("\0".join(about).encode("utf-8", "surrogateescape") + b"\0\0")
            content = tar.extractfile(member) if member.isreg() else None
            while content is not None and (part := content.read(_CHUNK)):
                digest.update(part)
    return digest.hexdigest()[:40]


def base_images(dockerfile: str) -> Iterator[str]:
    """Yield the images that a Dockerfile starts from, except `scratch` and the file's own stages."""
    stages: set[str] = set()
    arguments: dict[str, str] = {}
    for line in re.sub(r"\\\r?\n", " ", dockerfile).splitlines():
        if (argument := _ARG.match(line)) is not None:
            arguments.setdefault(argument[1], (argument[2] or "").strip("\"'"))
        if (start := _FROM.match(line)) is None:
            continue
        name = _VARIABLE.sub(lambda match: arguments.get(match[1] or match[2]) or match[3] or "", start[1])
        if name and name != "scratch" and name.lower() not in stages:
            yield name
        if start[2]:
            stages.add(start[2].lower())
