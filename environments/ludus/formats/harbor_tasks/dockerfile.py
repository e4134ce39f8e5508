"""Dockerfiles that need no engine: they only copy files, and set the work directory and variables."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_CONTINUED: Final = re.compile(r"\\[ \t]*\r?\n")
_IGNORED: Final = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "SHELL", "STOPSIGNAL", "USER"})
_MAKE_DIRECTORIES: Final = re.compile(r"mkdir -p((?: +/[\w./-]+)+)")
_SYSTEM: Final = frozenset({"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"})


class NeedsEngine(Exception):
    """The image can only be built by a container engine; the message says why."""


@dataclass(slots=True)
class CopiedFile:
    """A file that the image has in addition to its system."""

    path: str
    """Its absolute path in the image."""
    source: Path
    executable: bool


@dataclass(slots=True)
class PlainImage:
    """What a Dockerfile adds to a system."""

    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    files: list[CopiedFile] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)


def read_dockerfile(folder: Path) -> PlainImage:
    """Return what the Dockerfile of a folder adds to the system that it starts from.

    Raises:
        NeedsEngine: it does more than copy files of the folder, and set the work directory and variables.
    """
    if (folder / ".dockerignore").exists():
        raise NeedsEngine(".dockerignore")
    image = PlainImage()
    started = False
    try:
        text = (folder / "Dockerfile").read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise NeedsEngine("a Dockerfile that is not UTF-8") from None
    for line in _instructions(text):
        name, _, rest = line.partition(" ")
        name, rest = name.upper(), rest.strip()
        if name == "FROM":
            if started:
                raise NeedsEngine("several stages")
            started = True
        elif name == "WORKDIR":
            image.workdir = _inside(image.workdir, _plain(rest))
            image.directories.append(image.workdir)
        elif name == "ENV":
            image.env |= _variables(rest)
        elif name in ("COPY", "ADD"):
            _copy(image, folder, _plain(rest), adds=name == "ADD")
        elif name == "RUN" and (found := _MAKE_DIRECTORIES.fullmatch(rest)):
            image.directories += [_inside("/", path) for path in found[1].split()]
        elif name not in _IGNORED:
            raise NeedsEngine(f"{name} {rest}"[:80])
    for path in (*image.directories, *(file.path for file in image.files)):
        if (top := path.split("/")[1]) in _SYSTEM:
            raise NeedsEngine(f"it writes to /{top}")
    return image


def _instructions(text: str) -> Iterator[str]:
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]  # as Docker, not at U+2028
    for line in _CONTINUED.sub(" ", "\n".join(lines)).split("\n"):
        if line.strip():
            yield line.strip()


def _plain(text: str) -> str:
    if "$" in text or "<<" in text:
        raise NeedsEngine(text[:80])
    return text


def _inside(base: str, path: str) -> str:
    return posixpath.normpath("/" + posixpath.join(base, path).lstrip("/"))


def _variables(text: str) -> dict[str, str]:
    _plain(text)
    name, separator, value = text.partition(" ")
    if "=" not in name and separator:  # the older form: one variable, without an equals sign
        return {name: value.strip()}
    try:
        words = shlex.split(text)
    except ValueError:
        raise NeedsEngine(f"ENV {text}"[:80]) from None
    parts = [word.partition("=") for word in words]
    return {name: value for name, _, value in parts}


def _copy(image: PlainImage, folder: Path, text: str, *, adds: bool) -> None:
    try:
        words = json.loads(text) if text.startswith("[") else text.split()
    except ValueError:
        raise NeedsEngine(f"COPY {text}"[:80]) from None
    mode: int | None = None
    while words and words[0].startswith("--"):
        flag, _, value = words.pop(0).partition("=")
        if flag == "--chmod" and re.fullmatch(r"[0-7]{3,4}", value):
            mode = int(value, 8)
        elif flag != "--chown":
            raise NeedsEngine(f"COPY {flag}")
    if len(words) < 2:
        raise NeedsEngine(f"COPY {text}"[:80])
    *sources, target = words
    place = _inside(image.workdir, target)
    found = [path for source in sources for path in _sources(folder, source, adds=adds)]
    into = target.endswith(("/", "/.")) or target == "." or len(found) > 1
    if into or place in image.directories:
        image.directories.append(place)
    for path in found:
        if path.is_dir():
            image.directories.append(place)
            for below in sorted(path.rglob("*")):
                _add(image, below, posixpath.join(place, below.relative_to(path).as_posix()), mode)
        else:
            inside = into or place in image.directories
            _add(image, path, posixpath.join(place, path.name) if inside else place, mode)


def _sources(folder: Path, source: str, *, adds: bool) -> list[Path]:
    if adds and ("://" in source or re.search(r"\.(tar|tgz|tbz2?|txz)(\.\w+)?$", source)):
        raise NeedsEngine(f"ADD {source}"[:80])
    relative = posixpath.normpath(source.lstrip("/") or ".")
    if relative.startswith(".."):
        raise NeedsEngine(f"COPY {source}"[:80])
    found = sorted(folder.glob(relative)) if any(sign in relative for sign in "*?[") else [folder / relative]
    if not found or not all(path.exists() for path in found):
        raise NeedsEngine(f"COPY {source}, which does not exist"[:80])
    return found


def _add(image: PlainImage, path: Path, inside: str, mode: int | None) -> None:
    if path.is_symlink():
        raise NeedsEngine(f"the link {path.name}")
    if path.is_dir():
        image.directories.append(inside)
    else:
        executable = bool((path.stat().st_mode if mode is None else mode) & 0o100)
        image.files.append(CopiedFile(inside, path, executable))
