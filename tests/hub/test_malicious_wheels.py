"""Wheels made by hand to run code without being asked to, or to install other files than a hub has looked at."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hubs import WheelParts, kind_of, new_name, publish, published, release

from ludus.hub.registry.wheels import read_wheel
from ludus.hub.settings.hub import HubLimits
from ludus.registry.types.errors import WheelRefused

NAME = "alice-coin"
ENVIRONMENT = "[ludus.environments]\ntoss = alice_coin:Toss\n"
EVIL = b"raise SystemExit('the attack ran')\n"


def refusal_of(data: bytes, tmp_path: Path) -> str:
    """Return why a wheel is refused; empty for one that is accepted."""
    path = tmp_path / "file"
    path.write_bytes(data)
    try:
        read_wheel(path, WheelParts(NAME).filename, HubLimits())
    except WheelRefused as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    ("entry_points", "reason"),
    [
        ("[console_scripts]\npython = alice_coin:main\n", "pass for another program"),
        ("[console_scripts]\nludus = alice_coin:main\n", "pass for another program"),
        ("[console_scripts]\npip = alice_coin:main\n", "pass for another program"),
        ("[gui_scripts]\nuv = alice_coin:main\n", "pass for another program"),
        ("[console_scripts]\n../../evil = alice_coin:main\n", "pass for another program"),
        ("[console_scripts]\nalice-coin/../python = alice_coin:main\n", "pass for another program"),
        ("[pytest11]\ncoin = alice_coin\n", "other programs"),
        ("[ludus.commands]\ntrain = alice_coin:main\n", "other programs"),
        ("[ludus.sandboxes]\nbubblewrap = alice_coin:Box\n", "other programs"),
        ("[ludus.formats]\nharbor = alice_coin:Format\n", "other programs"),
        ("[mypy.plugins]\na = alice_coin\n", "other programs"),
        ("[opentelemetry_distro]\na = alice_coin\n", "other programs"),
    ],
)
def test_entry_points_that_would_run_in_other_programs_are_refused(
    entry_points: str, reason: str, tmp_path: Path
) -> None:
    assert reason in refusal_of(WheelParts(NAME, entry_points=ENVIRONMENT + entry_points).pack(), tmp_path)


def test_scripts_of_the_packages_own_name_are_accepted(tmp_path: Path) -> None:
    own = "[console_scripts]\nalice-coin = alice_coin:main\nalice-coin-table = alice_coin:main\n"
    assert refusal_of(WheelParts(NAME, entry_points=ENVIRONMENT + own).pack(), tmp_path) == ""


@pytest.mark.parametrize(
    "path",
    [
        "evil.pth", "EVIL.PTH", "evil.start", "sitecustomize.py", "SiteCustomize.so", "sitecustomize/__init__.py",
        "usercustomize.pyc", "pip-99.egg-info/entry_points.txt", "pip-99.EGG-INFO/PKG-INFO", "pip.egg-link",
        "Other-1.0.Dist-Info/entry_points.txt", "other.egg/EGG-INFO/entry_points.txt", "other-1.0.egg-info",
        "pydantic/__init__.py", "httpx.py", "mcp/server/evil.py", "PYDANTIC/main.py", "typing_extensions.py",
        "json/__init__.py", "subprocess.py", "ludus/client/evil.py", "alice_coin-1.0.0.data/scripts/python",
        "ALICE_COIN-1.0.0.DATA/purelib/evil.pth",
    ],
)  # fmt: skip
def test_files_that_run_or_replace_what_others_installed_are_refused(path: str, tmp_path: Path) -> None:
    assert refusal_of(WheelParts(NAME, more={path: EVIL}).pack(), tmp_path) != ""


@pytest.mark.parametrize(
    "requirement",
    [
        "evil @ file:///tmp/evil", "evil @ https://evil.example/evil-1.0.tar.gz", "evil@git+https://evil.example/evil",
        "evil[extra] @ http://evil.example/evil.whl ; python_version > '3'",
    ],
)  # fmt: skip
def test_requirements_by_address_are_refused(requirement: str, tmp_path: Path) -> None:
    metadata = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0.0\nRequires-Dist: {requirement}\n"
    assert "by name and version" in refusal_of(WheelParts(NAME, metadata=metadata).pack(), tmp_path)


# ── archives that programs read in different ways ──────────────────────────────────────────────────────────────────


def local(name: bytes, data: bytes, extra: bytes = b"", flags: int = 0) -> bytes:
    """Return a stored file with its header, as archives hold it in front of the directory."""
    crc = zipfile.crc32(data)  # type: ignore[attr-defined]
    sizes = (crc, len(data), len(data), len(name), len(extra))
    return struct.pack("<4s5H3L2H", b"PK\3\4", 20, flags, 0, 0, 33, *sizes) + name + extra + data


def start_of_directory(data: bytes) -> int:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.start_dir


def moved(data: bytes, at: int, inserted: bytes) -> bytes:
    """Return an archive with bytes inserted at an offset, whose directory is right again."""
    start = start_of_directory(data)
    directory, end = bytearray(data[start:-22]), bytearray(data[-22:])
    position = 0
    while position < len(directory):
        name, extra, comment = struct.unpack_from("<3H", directory, position + 28)
        (offset,) = struct.unpack_from("<L", directory, position + 42)
        if offset >= at:
            struct.pack_into("<L", directory, position + 42, offset + len(inserted))
        position += 46 + name + extra + comment
    struct.pack_into("<L", end, 16, start + len(inserted))
    return data[:at] + inserted + data[at:start] + bytes(directory) + bytes(end)


def second_file(data: bytes) -> int:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.infolist()[1].header_offset


def hidden_between(data: bytes) -> bytes:
    return moved(data, second_file(data), local(b"sitecustomize.py", EVIL))


def hidden_before_the_directory(data: bytes) -> bytes:
    return moved(data, start_of_directory(data), local(b"sitecustomize.py", EVIL))


def patched_header(offset: int, value: bytes) -> Callable[[bytes], bytes]:
    """Change bytes of the header in front of the first file."""

    def change(data: bytes) -> bytes:
        return data[:offset] + value + data[offset + len(value) :]

    return change


def with_member(extra: bytes = b"", name: str = "data.txt", content: bytes = b"x") -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        buffer = io.BytesIO(data)
        with zipfile.ZipFile(buffer, "a") as archive:
            member = zipfile.ZipInfo(name)
            member.extra = extra
            archive.writestr(member, content)
        return buffer.getvalue()

    return change


def streamed(data: bytes) -> bytes:
    """Write the archive as to a pipe: sizes stand behind the files."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, piece: Any) -> int:
            self.data += bytes(piece)
            return len(piece)

    pipe = Pipe()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(pipe, "w") as after:
        for member in before.infolist():
            after.writestr(member, before.read(member))
    return pipe.data


UNICODE_PATH = struct.pack("<HHBL", 0x7075, 5 + 16, 1, 0) + b"sitecustomize.py"
ZIP64 = struct.pack("<HHQQ", 1, 16, 1, 1)
AMBIGUOUS: dict[str, Callable[[bytes], bytes]] = {
    "a file between the others that the directory does not name": hidden_between,
    "a file in front of the directory that it does not name": hidden_before_the_directory,
    "bytes in front of the directory": lambda data: moved(data, start_of_directory(data), b"\0" * 7),
    "another name in front of the file": patched_header(30, b"sitecustomize"),
    "another method": patched_header(8, b"\0\0"),
    "another size": patched_header(18, b"\1\0\0\0"),
    "another unpacked size": patched_header(22, b"\1\0\0\0"),
    "another checksum": patched_header(14, b"\1\2\3\4"),
    "another flag": patched_header(6, b"\0\x08"),
    "a folder with content": with_member(name="folder/", content=EVIL),
    "another name as an extension": with_member(UNICODE_PATH),
    "other sizes as an extension": with_member(ZIP64),
    "an extension that is cut off": with_member(b"\x55\x54\xff\xff1"),
    "sizes behind the files": streamed,
}


@pytest.mark.parametrize("what", AMBIGUOUS)
def test_an_archive_that_programs_read_in_different_ways_is_refused(what: str, tmp_path: Path) -> None:
    sound = WheelParts(NAME).pack()
    assert refusal_of(sound, tmp_path) == ""
    changed = AMBIGUOUS[what](sound)
    assert changed != sound
    assert refusal_of(changed, tmp_path) != ""


def test_a_hidden_file_is_one_that_the_directory_does_not_name() -> None:
    """The archives above are attacks and no plain damage: Python reads them without a complaint."""
    for attack in (hidden_between, hidden_before_the_directory):
        with zipfile.ZipFile(io.BytesIO(attack(WheelParts(NAME).pack()))) as archive:
            assert archive.testzip() is None
            assert "sitecustomize.py" not in archive.namelist()


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_installers_unpack_the_files_of_an_accepted_wheel_and_no_others(installer: str, tmp_path: Path) -> None:
    parts = WheelParts(NAME, more={"alice_data/table.txt": b"1,2\n" * 9_000, "alice_data/é.txt": b""})
    path = tmp_path / parts.filename
    path.write_bytes(parts.pack())
    read_wheel(path, parts.filename, HubLimits())
    command = [sys.executable, "-m", installer, *(["pip"] if installer == "uv" else []), "install", "--no-deps"]
    target = tmp_path / "target"
    subprocess.run([*command, "--target", str(target), str(path)], check=True, capture_output=True)
    unpacked = {str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()}
    own = {"direct_url.json", "INSTALLER", "REQUESTED", "uv_cache.json"}
    kept = {file for file in unpacked if Path(file).name not in own and "__pycache__" not in file and file != ".lock"}
    assert kept == set(parts.files())
    for file, content in parts.files().items():
        if not file.endswith("RECORD"):
            assert (target / file).read_bytes() == content


def test_a_refused_wheel_leaves_nothing_on_a_hub(plain_client: httpx.Client) -> None:
    name = new_name()
    wheel = WheelParts(f"alice-{name}")
    answer = publish(plain_client, release(f"alice/{name}", wheel=hidden_between(wheel.pack())))
    assert kind_of(answer) == "WheelRefused"
    assert plain_client.get(f"/api/v1/environments/alice/{name}").status_code == 404
    published(plain_client, release(f"alice/{name}", parts=wheel))
