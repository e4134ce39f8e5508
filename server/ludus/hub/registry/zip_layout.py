"""Check that each program that unpacks an archive gets the same files from it.

How this works: a zip archive names its files twice, in front of each file and in a directory at the end. Python and pip
read the directory; programs that unpack while they download, such as uv, read the headers in front of the files. An
archive in which the two differ, or with files between those of the directory, installs other files than were looked at.
So `check_layout` accepts the plain form alone that build backends write: the files follow each other without a gap from
the first byte to the directory, each header says what the directory says, and there are no extensions that give a file
another name or size.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Sequence
from typing import Final

from ludus.registry.types.errors import WheelRefused

_HEADER: Final = struct.Struct("<4s5H3L2H")
"""The header in front of a file: APPNOTE.TXT of PKWARE, 4.3.7."""

_SIGNATURE: Final = b"PK\x03\x04"
_LATER_SIZES: Final = 0x8
"""The flag of a file whose sizes stand behind it, so that its end cannot be known from its header."""

_UTF_8: Final = 0x800
_EXTENSIONS: Final = frozenset({0x000A, 0x5455, 0x5855, 0x7855, 0x7875})
"""The extensions that hold times and user ids only."""


def check_layout(file: io.BufferedReader, members: Sequence[zipfile.ZipInfo], directory: int) -> None:
    """Refuse an archive of which programs get different files.

    Args:
        file: the archive.
        members: what its directory names.
        directory: where the directory begins.

    Raises:
        WheelRefused: the headers differ from the directory, there is something between the files, or a file has an
            extension that is not times and ids.
    """
    end = 0
    for member in sorted(members, key=lambda each: each.header_offset):
        name = ascii(member.filename)
        if member.header_offset != end:
            raise WheelRefused(f"{name} overlaps another file of the archive, or there is data in front of it")
        file.seek(end)
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or header[:4] != _SIGNATURE:
            raise WheelRefused(f"the archive has no file where {name} should begin; build the wheel again")
        _, _, flags, method, _, _, crc, packed, unpacked, name_length, extra_length = _HEADER.unpack(header)
        spelled, extra = file.read(name_length), file.read(extra_length)
        stated = (flags, method, crc, packed, unpacked)
        listed = (member.flag_bits, member.compress_type, member.CRC, member.compress_size, member.file_size)
        if stated != listed or spelled != _spelling(member):
            raise WheelRefused(f"the archive says different things about {name} in two places; build the wheel again")
        if flags & _LATER_SIZES or member.is_dir() and (packed or unpacked):
            raise WheelRefused(f"{name} is written in a way that wheels do not use; build the wheel again")
        for extension in (*_kinds(extra, name), *_kinds(member.extra, name)):
            if extension not in _EXTENSIONS:
                raise WheelRefused(f"{name} has the zip extension {extension:#06x}; build the wheel without it")
        end += _HEADER.size + name_length + extra_length + packed
    if end != directory:
        raise WheelRefused("the archive has data between its last file and its directory; build the wheel again")


def _spelling(member: zipfile.ZipInfo) -> bytes:
    """Return the bytes of a file's name in the directory. Names beyond ASCII are UTF-8."""
    if not member.orig_filename.isascii() and not member.flag_bits & _UTF_8:
        raise WheelRefused(f"the name {ascii(member.filename)} is not marked as UTF-8; build the wheel again")
    return member.orig_filename.encode()


def _kinds(extra: bytes, name: str) -> list[int]:
    """Return the kinds of the extensions in an extra field.

    Raises:
        WheelRefused: it is not a sequence of them.
    """
    kinds: list[int] = []
    while extra:
        if len(extra) < 4 or len(extra) < 4 + (size := int.from_bytes(extra[2:4], "little")):
            raise WheelRefused(f"{name} has an extra field that is cut off; build the wheel again")
        kinds.append(int.from_bytes(extra[:2], "little"))
        extra = extra[4 + size :]
    return kinds
