"""Read a wheel that a stranger has uploaded, without unpacking it.

How this works: `read_wheel` checks the archive before it reads any member. The list of members must be bounded, free of
repetitions and of paths that lead out of the folder, and the archive must be plain (`zip_layout.py`): members that
share their bytes can unpack to petabytes, and hidden ones reach installers that read archives in another way. Only then
are members read, each of them in pieces and never beyond the size that it declares, and compared with RECORD. Last,
METADATA, WHEEL and entry_points.txt are parsed. Anything unusual that pip would accept but a person would not expect is
refused too: files in Ludus's own package, files that run at every start of Python, files that are installed elsewhere
(`*.data`), modules of other packages, scripts and entry points that would run in other programs, requirements by
address, links, and data before or after the archive.
"""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import io
import re
import stat
import sys
import unicodedata
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from typing import Final

from packaging.metadata import Metadata, parse_email
from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from ludus.common.distribution import DISTRIBUTION
from ludus.hub.registry.zip_layout import check_layout
from ludus.hub.settings.hub import HubLimits
from ludus.registry.types.errors import WheelRefused

GROUP: Final = "ludus.environments"
"""The entry-point group of environments."""

SMALL_FILE: Final = 1024 * 1024
"""The size up to which a file may have any compression ratio, and the largest file of the metadata."""

_READ: Final = 1024 * 1024
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED: Final = 0x1
_LONGEST_PATH: Final = 400
_BEFORE_LICENSE_FILES: Final = frozenset({"1.0", "1.1", "1.2", "2.1", "2.2", "2.3"})
"""The versions of the metadata under which older build backends write fields of later ones.

So did setuptools before 77 with `License-File` and hatchling before 1.27 with `License-Expression`. pip and uv read
such wheels. Their fields are checked as those of the version that has them, except the paths of licenses, which had no
rules.
"""
_WITH_LICENSE_FILES: Final = "2.4"
_NEWER_FIELD: Final = "introduced in metadata version"
_OTHER_BACKEND: Final = "build it with another build backend, such as setuptools>=77 in requires of [build-system]"
_AT_STARTUP: Final = frozenset({"sitecustomize", "usercustomize"})
"""Modules that Python imports whenever it starts."""

_STARTUP_FILES: Final = (".pth", ".start")
"""The ends of files that Python obeys whenever it starts; those of PEP 829 from Python 3.15 on."""

_METADATA_FOLDERS: Final = (".dist-info", ".egg-info", ".egg-link", ".egg")
"""The ends of what `importlib.metadata` and installers take for an installed package, in any case."""

_SCRIPTS: Final = ("console_scripts", "gui_scripts")


@dataclass(frozen=True)
class WheelFacts:
    """What a wheel says about itself.

    Attributes:
        filename: the file's name.
        distribution: the normal form of its name.
        version: its version, in normal form.
        metadata: the METADATA file.
        summary: its one-line description.
        description: its long description, and `description_type` the media type of that.
        license: its SPDX expression, or the free text of the older field.
        keywords: its keywords.
        requires_python: the versions of Python that it runs on.
        sources: `module:Class` of each environment, by name.
        files: the number of its files.
    """

    filename: str
    distribution: str
    version: str
    metadata: bytes
    summary: str
    description: str
    description_type: str
    license: str
    keywords: tuple[str, ...]
    requires_python: str | None
    sources: dict[str, str]
    files: int


def read_wheel(path: Path, filename: str, limits: HubLimits) -> WheelFacts:
    """Check a wheel, and return what it says about itself.

    Args:
        path: where the file is.
        filename: the name under which it was uploaded.
        limits: the limits on its size.

    Raises:
        WheelRefused: it is not a wheel, is broken, or is unsafe; the message says which file and why.
    """
    name, version = _of_filename(filename)
    try:
        with path.open("rb") as file:
            _check_frame(file, path.stat().st_size)
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                _check_members(members, limits)
                check_layout(file, members, archive.start_dir)
                return _read(archive, filename, name, version)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError, ValueError) as error:
        raise WheelRefused(f"{filename} is not a sound zip archive: {error}; build it again") from None


def _of_filename(filename: str) -> tuple[str, Version]:
    try:
        name, version, build, tags = parse_wheel_filename(filename)
    except InvalidWheelFilename as error:
        raise WheelRefused(f"{ascii(filename[:120])} is not the name of a wheel: {error}") from None
    if build or len(filename) > 255:
        raise WheelRefused(f"{filename[:255]} has a build number or too long a name; build it without one")
    if version.local is not None:
        raise WheelRefused(f"{filename} has a local version (+{version.local}); publish a version without one")
    if not any(tag.interpreter.startswith(("py3", "cp3")) for tag in tags):
        raise WheelRefused(f"{filename} is not for Python 3")
    return str(name), version


def _check_frame(file: io.BufferedReader, size: int) -> None:
    """Refuse data before the first file or after the end of the archive, which programs read in different ways."""
    if file.read(4) != b"PK\x03\x04":
        raise WheelRefused("the file is not a wheel: it does not begin as a zip archive does")
    file.seek(max(0, size - 22))
    end = file.read(22)
    if end[:4] != b"PK\x05\x06" or end[20:] != b"\0\0":
        raise WheelRefused("the zip archive has a comment, or data after its end; build the wheel again")
    file.seek(0)


def _read(archive: zipfile.ZipFile, filename: str, name: str, version: Version) -> WheelFacts:
    members = archive.infolist()
    names = [member.filename for member in members]
    info = _metadata_folder(names, name, version)
    _check_record(archive, members, info)
    metadata = _small(archive, f"{info}/METADATA")
    if "Root-Is-Purelib" not in _small(archive, f"{info}/WHEEL").decode("utf-8"):
        raise WheelRefused(f"{info}/WHEEL does not say where the wheel is installed; build it again")
    parsed = _parse_metadata(metadata, name, version)
    _check_requirements(parsed)
    groups = _entry_points(archive, names, info)
    _check_groups(groups, name)
    sources = _environments(groups, names)
    return WheelFacts(
        filename=filename,
        distribution=name,
        version=str(version),
        metadata=metadata,
        summary=parsed.summary or "",
        description=parsed.description or "",
        description_type=(parsed.description_content_type or "text/x-rst").partition(";")[0].strip().lower(),
        license=str(parsed.license_expression or parsed.license or ""),
        keywords=tuple(parsed.keywords or ()),
        requires_python=str(parsed.requires_python) if parsed.requires_python else None,
        sources=sources,
        files=len(names),
    )


# ── the archive ────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_members(members: Sequence[zipfile.ZipInfo], limits: HubLimits) -> None:
    if not members:
        raise WheelRefused("the wheel is empty")
    if len(members) > limits.wheel_files:
        raise WheelRefused(f"the wheel has {len(members)} files; this hub accepts {limits.wheel_files}")
    total = sum(member.file_size for member in members)
    if total > limits.unpacked_bytes:
        raise WheelRefused(f"the wheel unpacks to {total} bytes; this hub accepts {limits.unpacked_bytes}")
    seen: dict[str, str] = {}
    for member in members:
        _check_path(member)
        folded = unicodedata.normalize("NFKC", member.filename.rstrip("/")).casefold()
        if folded in seen:
            raise WheelRefused(
                f"the wheel has {ascii(member.filename)} twice, or in two spellings that one file system cannot hold"
            )
        seen[folded] = member.filename
        if member.flag_bits & _ENCRYPTED or member.compress_type not in _METHODS:
            raise WheelRefused(f"{ascii(member.filename)} is encrypted, or compressed in a way that wheels do not use")
        if member.file_size > SMALL_FILE and member.file_size > limits.compression_ratio * member.compress_size:
            raise WheelRefused(
                f"{ascii(member.filename)} unpacks to more than {limits.compression_ratio} times its size"
            )
    for folded, spelled in seen.items():
        parts = folded.split("/")
        for depth in range(1, len(parts)):
            above = seen.get("/".join(parts[:depth]))
            if above is not None and not above.endswith("/"):
                raise WheelRefused(f"{ascii(above)} is a file, and {ascii(spelled)} would be in it")


def _check_path(member: zipfile.ZipInfo) -> None:
    name = member.filename
    parts = name.rstrip("/").split("/")
    unsafe = (
        not name
        or len(name) > _LONGEST_PATH
        or name != member.orig_filename
        or name.startswith("/")
        or "\\" in name
        or ":" in name
        or any(part in ("", ".", "..") for part in parts)
        or any(ord(char) < 32 or ord(char) == 127 for char in name)
    )
    if unsafe:
        raise WheelRefused(
            f"the path {ascii(name[:_LONGEST_PATH])} would be outside the wheel's folder, or is not safe"
        )
    mode = member.external_attr >> 16
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise WheelRefused(f"{ascii(name)} is a link or a device; a wheel holds files only")
    first = parts[0].casefold()
    module = first.partition(".")[0] if len(parts) == 1 and not name.endswith("/") else first
    if (len(parts) == 1 and first.endswith(_STARTUP_FILES)) or module in _AT_STARTUP:
        raise WheelRefused(f"{ascii(name)} would run whenever Python starts; leave it out")
    if first.endswith(_METADATA_FOLDERS) and not parts[0].endswith(".dist-info"):
        raise WheelRefused(f"{ascii(name)} would pass for another package that is installed; leave it out")
    if first.endswith(".data"):
        raise WheelRefused(f"{ascii(name)} would be installed outside the package; leave out scripts and data files")
    if module == "ludus":
        raise WheelRefused(f"{ascii(name)} would change Ludus itself; give your package a name of its own")
    if module in sys.stdlib_module_names or module in _used_modules():
        raise WheelRefused(
            f"{ascii(name)} would replace or hide the module {module} of Python or of a package that Ludus uses; give "
            "your module a name of its own"
        )


@cache
def _used_modules() -> frozenset[str]:
    """Return the modules of Ludus's requirements, as far as they are installed here."""
    used, open_ends = set[str](), [DISTRIBUTION]
    while open_ends:
        name = canonicalize_name(open_ends.pop())
        if name in used:
            continue
        try:
            required = distribution(name).requires or ()
        except PackageNotFoundError:
            continue
        used.add(name)
        open_ends += [Requirement(text).name for text in required]
    owners = packages_distributions().items()
    return frozenset(module.casefold() for module, names in owners if used.intersection(map(canonicalize_name, names)))


def _small(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        member = archive.getinfo(name)
    except KeyError:
        raise WheelRefused(f"the wheel has no {name}; build it again") from None
    if member.file_size > SMALL_FILE:
        raise WheelRefused(f"{name} is larger than {SMALL_FILE} bytes")
    return archive.read(member)


# ── what is in it ──────────────────────────────────────────────────────────────────────────────────────────────────


def _metadata_folder(names: Sequence[str], name: str, version: Version) -> str:
    folders = {file.partition("/")[0] for file in names if file.partition("/")[0].endswith(".dist-info")}
    if len(folders) != 1:
        raise WheelRefused(f"the wheel has {len(folders)} folders *.dist-info, where it takes one; build it again")
    folder = folders.pop()
    stated, dash, number = folder.removesuffix(".dist-info").rpartition("-")
    if not dash or canonicalize_name(stated) != name or not _is_version(number, version):
        raise WheelRefused(f"the folder {ascii(folder)} is not that of {name} {version}, which the file's name says")
    return folder


def _is_version(text: str, version: Version) -> bool:
    try:
        return Version(text) == version
    except ValueError:
        return False


def _check_record(archive: zipfile.ZipFile, members: Sequence[zipfile.ZipInfo], info: str) -> None:
    """Compare every file with RECORD."""
    try:
        rows = list(csv.reader(io.StringIO(_small(archive, f"{info}/RECORD").decode("utf-8"))))
    except csv.Error as error:
        raise WheelRefused(f"{info}/RECORD cannot be read: {error}") from None
    if any(row and len(row) != 3 for row in rows):
        raise WheelRefused(f"{info}/RECORD has a line that is not path, digest, size")
    record = {row[0]: row[1] for row in rows if row}
    if len(record) != sum(1 for row in rows if row):
        raise WheelRefused(f"{info}/RECORD names a file twice")
    unsigned = {f"{info}/RECORD", f"{info}/RECORD.jws", f"{info}/RECORD.p7s"}
    files = [member for member in members if not member.is_dir()]
    if missing := set(record) - {member.filename for member in files} - unsigned:
        raise WheelRefused(f"{info}/RECORD names {ascii(min(missing))}, which the wheel does not have")
    for member in files:
        if member.filename in unsigned:
            continue
        if record.get(member.filename) != f"sha256={_hash(archive, member)}":
            raise WheelRefused(f"{ascii(member.filename)} does not have the sha256 that {info}/RECORD says")


def _hash(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    digest, size = hashlib.sha256(), 0
    with archive.open(member) as file:
        while piece := file.read(_READ):
            digest.update(piece)
            size += len(piece)
    if size != member.file_size:
        raise WheelRefused(f"{ascii(member.filename)} has another size than it declares")
    return base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")


def _parse_metadata(data: bytes, name: str, version: Version) -> Metadata:
    raw, unparsed = parse_email(data)
    if unparsed:
        raise WheelRefused(
            f"METADATA has the field {min(unparsed)[:60]!r}, which no version of the metadata has, or not in this "
            f"form; {_OTHER_BACKEND}"
        )
    if raw.get("metadata_version") in _BEFORE_LICENSE_FILES:
        raw.pop("license_files", None)
        raw["metadata_version"] = _WITH_LICENSE_FILES
    try:
        parsed = Metadata.from_raw(raw, validate=True)
    except ExceptionGroup as errors:
        first = errors.exceptions[0]
        by_backend = _NEWER_FIELD in str(first) or getattr(first, "field", "") == "metadata-version"
        advice = _OTHER_BACKEND if by_backend else "correct pyproject.toml"
        raise WheelRefused(f"METADATA is not valid: {first}; {advice}") from None
    if canonicalize_name(parsed.name) != name or parsed.version != version:
        raise WheelRefused(
            f"METADATA says {parsed.name} {parsed.version}, and the file's name says {name} {version}; build it again"
        )
    return parsed


def _check_requirements(metadata: Metadata) -> None:
    for requirement in metadata.requires_dist or ():
        if requirement.url is not None:
            raise WheelRefused(
                f"METADATA requires {requirement.name} from {requirement.url[:100]!r}; require it by name and version, "
                "so that it comes from an index and never runs code when it is installed"
            )


def _check_groups(groups: dict[str, dict[str, str]], distribution: str) -> None:
    """Refuse entry points by which other programs would run code of the package without being asked to."""
    for group, entries in groups.items():
        if group not in (GROUP, *_SCRIPTS):
            raise WheelRefused(
                f"the entry points {ascii(group)} would run in other programs of those who install it; a package on a "
                f"hub has {GROUP} and scripts"
            )
        for script in entries if group in _SCRIPTS else ():
            if not re.fullmatch(rf"{re.escape(distribution)}(-[a-z0-9-]+)?", script):
                raise WheelRefused(
                    f"the script {ascii(script)} could pass for another program; name it {distribution} or "
                    f"{distribution}-SOMETHING"
                )


def _entry_points(archive: zipfile.ZipFile, names: Sequence[str], info: str) -> dict[str, dict[str, str]]:
    path = f"{info}/entry_points.txt"
    if path not in names:
        return {}
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(_small(archive, path).decode("utf-8"))
    except configparser.Error as error:
        raise WheelRefused(f"{path} cannot be read: {error.message.splitlines()[0]}") from None
    return {section: dict(parser[section]) for section in parser.sections()}


def _environments(groups: dict[str, dict[str, str]], names: Sequence[str]) -> dict[str, str]:
    found = {name: source.replace(" ", "") for name, source in groups.get(GROUP, {}).items()}
    if not found:
        raise WheelRefused(
            f"the wheel has no environment: name one in pyproject.toml under [project.entry-points.{GROUP!r}]"
        )
    files = set(names)
    for name, source in found.items():
        module, _, attribute = source.partition(":")
        path = module.replace(".", "/")
        if not attribute.isidentifier() or not (f"{path}.py" in files or f"{path}/__init__.py" in files):
            raise WheelRefused(
                f"the environment {ascii(name)} is {ascii(source)}, which is not module:Class of a module in the wheel"
            )
    return found
