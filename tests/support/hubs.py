"""A real `ludus hub` in a process of its own, and packages to publish on it: wheels made by hand, whole or broken."""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from free_ports import free_port

from ludus.registry.types.packages import EnvironmentEntry, Manifest, Signed, Statement
from ludus.registry.types.signing import digest_of, sign, text_digest

PATIENCE = 60.0
KEY = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"the publisher of the tests").digest())
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"another publisher").digest())
MODULE = '''
from ludus.server import Environment, Result, Task, tool


class Coin(Task):
    side: str


class Toss(Environment[Coin]):
    """Say how the coin lies."""

    splits = {"train": [Coin(id="a", side="heads"), Coin(id="b", side="tails")]}
    reward_range = (0.0, 1.0)

    def prompt(self) -> str:
        return "heads or tails?"

    @tool(ends=True)
    def say(self, side: str) -> Result:
        """Say it."""
        return Result("done", reward=float(side == self.task.side))
'''
PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{distribution}"
version = "{version}"
description = "Say how a coin lies."
requires-python = ">=3.11"
license = "MIT"

[project.entry-points."ludus.environments"]
toss = "{module}:Toss"

[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]
"""
_numbers = itertools.count(1)


def new_name(prefix: str = "pkg") -> str:
    """A name that no other test of this process uses, and that looks like none of theirs."""
    letters = "abcdefghjkmnpqrtuxyz"
    number, text = next(_numbers), ""
    while number:
        number, place = divmod(number, len(letters))
        text += letters[place]
    return f"{prefix}{text}q"


@dataclass
class WheelParts:
    """The files of a wheel; a test changes what it wants, and `pack` makes the archive."""

    name: str
    version: str = "1.0.0"
    module: str = MODULE
    entry_points: str | None = None
    metadata: str | None = None
    more: dict[str, bytes] = field(default_factory=dict)
    change: Callable[[dict[str, bytes]], None] = lambda files: None
    """Changes the files after RECORD was written."""

    @property
    def stem(self) -> str:
        return f"{self.name.replace('-', '_').replace('.', '_')}-{self.version}"

    @property
    def filename(self) -> str:
        return f"{self.stem}-py3-none-any.whl"

    @property
    def package(self) -> str:
        return self.name.replace("-", "_").replace(".", "_")

    def files(self) -> dict[str, bytes]:
        info = f"{self.stem}.dist-info"
        metadata = self.metadata or (
            f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\nSummary: A coin.\n"
            "Requires-Python: >=3.11\nDescription-Content-Type: text/markdown\n\n# Coin\n"
        )
        entry_points = self.entry_points or f"[ludus.environments]\ntoss = {self.package}:Toss\n"
        files = {
            f"{self.package}.py": self.module.encode(),
            **self.more,
            f"{info}/METADATA": metadata.encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": entry_points.encode(),
        }
        record = "".join(f"{path},sha256={record_digest(data)},{len(data)}\n" for path, data in files.items())
        files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
        self.change(files)
        return files

    def pack(self) -> bytes:
        return pack(self.files())


def record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def pack(files: Mapping[str, bytes], level: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", level) as archive:
        for path, data in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), data, level)
    return buffer.getvalue()


@dataclass
class Release:
    """Everything that is uploaded of one version."""

    filename: str
    wheel: bytes
    manifest: Manifest
    card: str
    signed: Signed | None

    def fields(self) -> dict[str, str]:
        found = {"manifest": self.manifest.model_dump_json(by_alias=True), "card": self.card}
        if self.signed is not None:
            found["signature"] = self.signed.model_dump_json(by_alias=True)
        return found

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.wheel).hexdigest()


def release(
    package: str, version: str = "1.0.0", *, parts: WheelParts | None = None, wheel: bytes | None = None,
    filename: str | None = None, card: str = "# Coin\n", key: Ed25519PrivateKey | None = KEY, **manifest: Any,
) -> Release:  # fmt: skip
    """A version of `owner/name`, signed."""
    parts = parts or WheelParts(package.replace("/", "-"), version)
    wheel = parts.pack() if wheel is None else wheel
    filename = filename or parts.filename
    fields = {
        "id": package, "version": version, "description": "A coin.", "tags": ("coin",),
        "environments": (EnvironmentEntry(name="toss", source=f"{parts.package}:Toss"),), **manifest,
    }  # fmt: skip
    described = Manifest.model_validate(fields)
    statement = Statement(
        id=package, version=version, filename=filename, sha256=hashlib.sha256(wheel).hexdigest(), size=len(wheel),
        manifest_sha256=digest_of(described), card_sha256=text_digest(card),
    )  # fmt: skip
    return Release(filename, wheel, described, card, sign(statement, key) if key is not None else None)


def project(folder: Path, package: str, version: str = "1.0.0", toml: str = "", module: str = MODULE) -> Path:
    """A folder with a package of environments."""
    folder.mkdir(exist_ok=True)
    name = package.replace("/", "_")
    fields = {"distribution": package.replace("/", "-"), "version": version, "module": name}
    (folder / "pyproject.toml").write_text(PYPROJECT.format(**fields))
    (folder / "ludus.toml").write_text(f'id = "{package}"\n{toml}')
    (folder / "README.md").write_text("# Coins\n")
    (folder / f"{name}.py").write_text(module)
    return folder


class HubProcess:
    """A `ludus hub` process on a free port, or on the port that `start` is given."""

    def __init__(self, data: Path, *options: str, database: str | None = None, variables: dict[str, str] | None = None):
        self.data = data
        self._options = [*options, *(("--database", database) if database else ())]
        self._variables = variables or {}
        self._log = data.parent / f"{data.name}.log"
        self.url = ""
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self, port: int | None = None) -> None:
        port = free_port() if port is None else port
        command = [sys.executable, "-m", "ludus.cli", "hub", "--port", str(port), "--data", str(self.data)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self._options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                env={**os.environ, **self._variables},
            )  # fmt: skip
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline().decode() if readable else ""
        if " at http" not in line:
            self.process.kill()
            self.process.wait(PATIENCE)
            raise AssertionError(f"the hub did not start: {line}{self.log()}")
        self.url = line.split(" at ")[1].split()[0]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def _reap(self) -> int:
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE)


def publish(client: httpx.Client, one: Release) -> httpx.Response:
    files = {"wheel": (one.filename, one.wheel, "application/octet-stream")}
    where = f"/api/v1/environments/{one.manifest.id}/versions"
    return client.post(where, data=one.fields(), files=files)


def published(client: httpx.Client, one: Release) -> dict[str, Any]:
    answer = publish(client, one)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def kind_of(answer: httpx.Response) -> str:
    """The class of a refusal, which must be one with a message."""
    error = answer.json()["error"]
    assert answer.status_code >= 400
    assert error["message"]
    return str(error["data"]["kind"])


def twine_form(one: Release, **changes: str | None) -> dict[str, str]:
    """The fields that twine sends with a wheel."""
    fields: dict[str, str | None] = {
        ":action": "file_upload", "protocol_version": "1", "filetype": "bdist_wheel",
        "sha256_digest": one.sha256, "blake2_256_digest": hashlib.blake2b(one.wheel, digest_size=32).hexdigest(),
        **changes,
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value is not None}


def upload(client: httpx.Client, one: Release, **changes: str | None) -> httpx.Response:
    files = {"content": (one.filename, one.wheel, "application/octet-stream")}
    return client.post("/index/upload/", data=twine_form(one, **changes), files=files)


def as_json(text: str) -> Any:
    return json.loads(text)
