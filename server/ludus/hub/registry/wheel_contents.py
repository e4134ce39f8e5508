"""Read the files of a published wheel for people who look at its code.

A wheel was checked when it was uploaded (`ludus.hub.registry.wheels`). Still, nothing here trusts the sizes that it
declares: a file is read up to a bound and no further. Files are compared by the SHA-256 digests of RECORD, which the
upload has compared with their bytes; the checksums of the archive itself are easy to forge.
"""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ludus.hub.registry.wheels import SMALL_FILE
from ludus.protocol.errors import NotFound
from ludus.registry.types.errors import WheelRefused

MOST_TEXT: Final = 512 * 1024
"""The largest file in bytes that is shown as text."""

METADATA_FOLDER: Final = "*.dist-info"
"""The folder of the metadata, whose real name holds the version."""


@dataclass(frozen=True, slots=True)
class WheelFile:
    """One file of a wheel.

    Attributes:
        path: its path, which is the same in all versions: the folder of the metadata is `METADATA_FOLDER`.
        size: its bytes, as the archive declares them.
        digest: the SHA-256 digest of its bytes, in the form of RECORD.
    """

    path: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class FileText:
    """The content of a file.

    Attributes:
        text: the text; None if it cannot be shown.
        problem: why it cannot be shown, as the end of a sentence; empty if it can.
    """

    text: str | None
    problem: str = ""


class WheelContents:
    """The files of one wheel, except RECORD, which follows from the others.

    Attributes:
        files: the files by their paths, in the order of the paths.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._members: dict[str, zipfile.ZipInfo] = {}
        members = [one for one in archive.infolist() if not one.is_dir()]
        folder = next((top for one in members if (top := one.filename.partition("/")[0]).endswith(".dist-info")), "")
        record = f"{folder}/RECORD"
        digests = self._digests(record)
        found = []
        for member in members:
            if member.filename == record:
                continue
            top, slash, rest = member.filename.partition("/")
            path = f"{METADATA_FOLDER}{slash}{rest}" if top == folder else member.filename
            self._members[path] = member
            found.append(WheelFile(path, member.file_size, digests.get(member.filename) or self._digest(member)))
        self.files: dict[str, WheelFile] = {one.path: one for one in sorted(found, key=lambda one: one.path)}

    def text(self, path: str) -> FileText:
        """Return the text of a file; of a path that the wheel does not have, an empty text.

        Raises:
            WheelRefused: the archive is broken.
        """
        member = self._members.get(path)
        if member is None:
            return FileText("")
        data = self._read(member, MOST_TEXT)
        if len(data) > MOST_TEXT:
            return FileText(None, f"it is larger than {MOST_TEXT // 1024} KiB")
        if b"\0" in data:
            return FileText(None, "it is not text")
        try:
            return FileText(data.decode("utf-8"))
        except UnicodeDecodeError:
            return FileText(None, "it is not text in UTF-8")

    def file(self, path: str) -> WheelFile:
        """Return a file.

        Raises:
            NotFound: the wheel has no such file.
        """
        found = self.files.get(path)
        if found is None:
            raise NotFound("this version has no such file")
        return found

    def _digests(self, record: str) -> dict[str, str]:
        if record not in self._archive.NameToInfo:
            return {}
        text = self._read(self._archive.getinfo(record), SMALL_FILE).decode("utf-8", "replace")
        try:
            return {row[0]: row[1] for row in csv.reader(io.StringIO(text)) if len(row) == 3}
        except csv.Error:
            return {}

    def _digest(self, member: zipfile.ZipInfo) -> str:
        """Return the digest of a file that RECORD does not name, such as a signature of RECORD."""
        return f"sha256:{hashlib.sha256(self._read(member, SMALL_FILE)).hexdigest()}"

    def _read(self, member: zipfile.ZipInfo, most: int) -> bytes:
        """Return a file, or one byte more than `most` of it."""
        with self._archive.open(member) as file:
            return file.read(most + 1)


@contextmanager
def wheel_contents(path: Path) -> Iterator[WheelContents]:
    """Open a wheel.

    Raises:
        WheelRefused: it cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield WheelContents(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise WheelRefused(f"the wheel of this version cannot be read: {error}") from None
