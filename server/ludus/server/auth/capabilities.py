"""Play capabilities: the credential in the path of an episode's agent endpoint.

A capability holds the episode, a digest of its tool list, an expiry and a MAC of these:

    play_ base64url( expiry:uint64 | SHA-256(tools)[:16] | server[:4] | credential[:8] | HMAC-SHA256[:20] | episode )

If the episode's id names a worker, the capability names it too, in front of the base64: `play_w0.AAAA…`. That part only
helps proxies to route; a capability whose part differs from its episode's is refused.

It is signed rather than stored, so every worker that has the key can verify it without asking the others. The MAC's
160 bits make it unguessable; the prefix lets log filters and secret scanners recognize it.

`server` identifies the process that started the episode, so that another process can report that it is the wrong one.
`credential` identifies the trainer token that started it, so that the capability ends with that token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
import time
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from ludus.protocol.errors import CapabilityRefused
from ludus.protocol.workers import worker_of
from ludus.server.auth.principal import CREDENTIAL_BYTES, Principal

PREFIX: Final = "play_"
"""The prefix of every capability."""

KEY_BYTES: Final = 32
"""The least length of a signing key, in bytes."""

_DIGEST_BYTES: Final = 16
_MAC_BYTES: Final = 20
_SERVER_BYTES: Final = 4
_CLAIMS_START: Final = struct.Struct(f">Q{_DIGEST_BYTES}s{_SERVER_BYTES}s{CREDENTIAL_BYTES}s")
_EPISODE_START: Final = _CLAIMS_START.size + _MAC_BYTES
_URL_SAFE: Final = b"-_"
_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_LAST_SECOND: Final = 253_402_300_799
"""The last second of the year 9999, the last year that `datetime` can represent, as Unix time."""
_REFUSAL: Final = (
    "this play address is not valid on this server: it is incomplete, or another server made it, or this one before it "
    "was restarted. Ask for a new one; behind a load balancer, requests must reach the server that started the episode"
)


class Claims(NamedTuple):
    """The contents of a verified capability."""

    episode: str
    tools_digest: bytes
    expires_at: float
    """Unix time in seconds."""
    made_here: bool
    """Whether the process that verified it also made it."""
    credential: bytes
    """`Principal.credential` of the token that started the episode."""

    def require_tools(self, tools: Sequence[str]) -> None:
        """Check that the capability is for exactly these tools.

        Raises:
            CapabilityRefused: it was made for another tool list.
        """
        if tools_digest(tuple(tools)) != self.tools_digest:
            raise CapabilityRefused("the episode's tools have changed since this play address was made")


@lru_cache(maxsize=4096)
def tools_digest(tools: tuple[str, ...]) -> bytes:
    """Return a digest of tool names, in order; two different lists have different digests."""
    return hashlib.sha256("".join(f"{len(tool)}:{tool}," for tool in tools).encode()).digest()[:_DIGEST_BYTES]


class CapabilitySigner:
    """Signs and verifies capabilities. Workers that share `key` accept each other's capabilities.

    Args:
        key: at least 32 secret bytes.
        ttl_seconds: how long a capability is valid.

    Raises:
        ValueError: the key is too short, or the time to live is not positive.
    """

    def __init__(self, key: bytes, ttl_seconds: float = 3600) -> None:
        if len(key) < KEY_BYTES:
            raise ValueError(f"a capability key needs at least {KEY_BYTES} bytes, this one has {len(key)}")
        if ttl_seconds <= 0:
            raise ValueError(f"capabilities need a positive time to live, not {ttl_seconds} seconds")
        self._key = key
        self._is_random = False
        self._server = secrets.token_bytes(_SERVER_BYTES)
        self.ttl_seconds = ttl_seconds

    @classmethod
    def random(cls, ttl_seconds: float = 3600) -> CapabilitySigner:
        """Return a signer with a random key, whose capabilities are valid only in this process."""
        signer = cls(secrets.token_bytes(KEY_BYTES), ttl_seconds)
        signer._is_random = True
        return signer

    def prefer(self, key: bytes) -> None:
        """Use a key that outlives the process instead of a random one; a key that was given stays."""
        if self._is_random:
            self._key, self._is_random = key, False

    @classmethod
    def from_file(cls, path: Path, ttl_seconds: float = 3600) -> CapabilitySigner:
        """Return a signer with the key in a file, in the format of `from_text`.

        Raises:
            ValueError: the file cannot be read, or holds no usable key.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read the capability key in {path}: {error}") from None
        return cls.from_text(text, ttl_seconds, where=str(path))

    @classmethod
    def from_text(cls, text: str, ttl_seconds: float = 3600, *, where: str = "the capability key") -> CapabilitySigner:
        """Return a signer with a key given as at least 64 hexadecimal digits.

        Raises:
            ValueError: the text is not such a key. The message never repeats the text.
        """
        try:
            key = bytes.fromhex(text.strip())
        except ValueError:
            key = b""
        if len(key) < KEY_BYTES:
            raise ValueError(
                f"{where} must hold at least {2 * KEY_BYTES} hexadecimal digits; "
                f'make one with `python -c "import secrets; print(secrets.token_hex({KEY_BYTES}))"`'
            )
        return cls(key, ttl_seconds)

    def sign(self, episode: str, tools: Sequence[str], principal: Principal | None = None) -> tuple[str, float]:
        """Return a capability to play an episode.

        Args:
            episode: the episode's id.
            tools: the names of its tools.
            principal: who started the episode; the capability expires no later than the principal's token.

        Returns:
            The capability, and the Unix time at which it expires, in seconds.
        """
        principal = principal or Principal.open()
        until = min(time.time() + self.ttl_seconds, principal.expires_at, _LAST_SECOND)
        expires_at = int(max(0.0, until))
        claims = _CLAIMS_START.pack(expires_at, tools_digest(tuple(tools)), self._server, principal.credential)
        name = episode.encode()
        token = claims + self._mac(claims, name) + name
        return _spelled(token), float(expires_at)

    def verify(self, capability: str) -> Claims:
        """Return the contents of `capability`, if it is signed with this key and has not expired.

        Raises:
            CapabilityRefused: it is malformed, forged, altered or expired.
        """
        token = _decode(capability)
        claims, mac, name = (
            token[: _CLAIMS_START.size],
            token[_CLAIMS_START.size : _EPISODE_START],
            token[_EPISODE_START:],
        )
        if not hmac.compare_digest(mac, self._mac(claims, name)):
            raise CapabilityRefused(_REFUSAL)
        expires_at, digest, server, credential = _CLAIMS_START.unpack(claims)
        if time.time() >= expires_at:
            raise CapabilityRefused(
                "this play address has expired: get a new one from the program that started the episode"
            )
        return Claims(name.decode(), digest, float(expires_at), server == self._server, credential)

    def _mac(self, claims: bytes, name: bytes) -> bytes:
        return hmac.digest(self._key, claims + name, "sha256")[:_MAC_BYTES]


def _decode(capability: str) -> bytes:
    """Decode a capability; accept only the spelling that `sign` writes, as base64 has others for the same bytes."""
    try:
        text = capability.removeprefix(PREFIX).rpartition(".")[2].encode("ascii")
        token = b64decode(text.translate(_TO_STANDARD) + b"=" * (-len(text) % 4), validate=True)
    except (UnicodeEncodeError, Base64Error):
        raise CapabilityRefused(_REFUSAL) from None
    if len(token) <= _EPISODE_START or _spelled(token) != capability:
        raise CapabilityRefused(_REFUSAL)
    return token


def _spelled(token: bytes) -> str:
    worker = worker_of(token[_EPISODE_START:].decode("utf-8", "replace"))
    prefix = PREFIX if worker is None else f"{PREFIX}{worker}."
    return prefix + b64encode(token, _URL_SAFE).rstrip(b"=").decode("ascii")
