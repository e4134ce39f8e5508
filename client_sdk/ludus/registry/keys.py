"""The publisher's own key, and the pinned keys of other publishers.

Both are files in the user's configuration folder. The first key that a publisher's version is installed with is pinned
(trust on first use). Later versions must be signed with a pinned key; a changed one is refused until the user trusts
it with `ludus keys trust`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ludus.common.distribution import missing_extra
from ludus.protocol.errors import NotFound, ParseError, RequestError
from ludus.registry.types.errors import KeyChanged
from ludus.registry.types.packages import PublicKey
from ludus.registry.types.signing import EXTRA
from ludus.registry.types.strict_json import read_strict

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FOLDER_VARIABLE: Final = "LUDUS_CONFIG_DIR"
"""The environment variable that names the folder of keys and pins."""

KEY_FILE: Final = "publisher-key.pem"
PINS_FILE: Final = "publishers.json"


class KeyFileUnusable(RequestError):
    """A file of keys or pins cannot be read."""


def config_folder() -> Path:
    """Return the folder of keys and pins: `LUDUS_CONFIG_DIR`, or `ludus` in the user's configuration folder."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "ludus"


def publisher_key(*, create: bool = False) -> Ed25519PrivateKey:
    """Return the publisher's own key.

    Args:
        create: whether to make one when there is none.

    Raises:
        NotFound: there is no key, and none is to be made.
        KeyFileUnusable: the file holds something else.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ModuleNotFoundError as error:
        raise missing_extra(error, EXTRA) from None
    path = config_folder() / KEY_FILE
    if not path.exists():
        if not create:
            raise NotFound(f"there is no publisher's key in {path}; `ludus keys create` makes one")
        made = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with contextlib.suppress(FileExistsError):
            _write_new(path, made)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileUnusable(f"{path} does not hold an Ed25519 key without a password; move it away, or restore it")
    return key


def _write_new(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read.

    Raises:
        FileExistsError: it exists; it stays as it is.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


class Pin(BaseModel):
    """The keys of one owner on one hub that this user trusts."""

    model_config = ConfigDict(extra="forbid")

    keys: list[PublicKey] = Field(min_length=1)
    since: datetime


class _PinsFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: int = 1
    hubs: dict[str, dict[str, Pin]] = {}


class Pins:
    """The pinned keys of publishers, by hub and owner.

    Args:
        path: the file; by default the one in the user's configuration folder.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or config_folder() / PINS_FILE

    def all(self) -> dict[str, dict[str, Pin]]:
        """Return all pins: by the hub's address, then by owner.

        Raises:
            KeyFileUnusable: the file cannot be read.
        """
        return self._read().hubs

    def keys(self, hub: str, owner: str) -> tuple[str, ...]:
        """Return the pinned keys of an owner; none for an owner that is not known."""
        pin = self.all().get(hub, {}).get(owner)
        return tuple(pin.keys) if pin is not None else ()

    def check(self, hub: str, owner: str, key: str) -> bool:
        """Check a key against the pinned ones, and pin it if the owner has none. Return whether it was pinned now.

        Raises:
            KeyChanged: the owner has other keys; the message says what to do.
        """
        with self._changing() as file:
            pins = file.hubs.setdefault(hub, {})
            pin = pins.get(owner)
            if pin is None:
                pins[owner] = Pin(keys=[key], since=datetime.now(UTC).replace(microsecond=0))
                return True
            if key in pin.keys:
                return False
        raise KeyChanged(
            f"the key of {owner!r} on {hub} has changed from {', '.join(pin.keys)} to {key}. Either {owner!r} has "
            "a new key, or another publisher pretends to be them. Ask them in another way, and if the new key is "
            f"theirs, run `ludus keys trust {owner} {key} --hub {hub}`, with the earlier keys behind it if they stay "
            "valid",
            key=key,
        )

    def trust(self, hub: str, owner: str, *keys: str) -> None:
        """Trust the keys of an owner from now on, in place of those before.

        Raises:
            KeyFileUnusable: one of them is not a public key.
        """
        with self._changing() as file:
            since = datetime.now(UTC).replace(microsecond=0)
            try:
                file.hubs.setdefault(hub, {})[owner] = Pin(keys=list(dict.fromkeys(keys)), since=since)
            except ValidationError:
                shown = ", ".join(map(repr, keys))
                raise KeyFileUnusable(f"{shown} is not a public key; one looks like ed25519:…=") from None

    def forget(self, hub: str, owner: str) -> None:
        """Forget the keys of an owner; the next one that is seen is pinned.

        Raises:
            NotFound: there is no pin of this owner.
        """
        with self._changing() as file:
            if file.hubs.get(hub, {}).pop(owner, None) is None:
                raise NotFound(f"no key of {owner!r} on {hub} is pinned in {self.path}")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[_PinsFile]:
        """Yield the pins while no other process changes them, and write them when the block ends without an error."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            file = self._read()
            before = file.model_dump_json()
            yield file
            if file.model_dump_json() != before:
                draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
                draft.write_text(file.model_dump_json(indent=2) + "\n", encoding="utf-8")
                draft.replace(self.path)

    def _read(self) -> _PinsFile:
        try:
            data = self.path.read_bytes()
            read_strict(data, str(self.path))
            return _PinsFile.model_validate_json(data)
        except FileNotFoundError:
            return _PinsFile()
        except (ValidationError, ParseError):
            raise KeyFileUnusable(f"{self.path} is not a file of pinned keys; restore it, or move it away") from None
