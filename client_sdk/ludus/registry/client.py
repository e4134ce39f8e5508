"""A client of a hub's JSON API."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
from pydantic import ValidationError

from ludus.protocol.errors import (
    ConnectionFailed,
    DeadlineExceeded,
    InvalidParams,
    NotFound,
    ParseError,
    ProtocolViolation,
)
from ludus.protocol.model import WireModel
from ludus.registry.types.errors import DigestMismatch, registry_error
from ludus.registry.types.packages import (
    BlockInfo,
    BlockList,
    KeyList,
    Manifest,
    OwnerList,
    PackageSummary,
    SearchResult,
    Signed,
    ValidationSummary,
    VersionInfo,
    VersionList,
)
from ludus.registry.types.people import (
    Access,
    AccountInfo,
    AuditList,
    CreatedToken,
    DeviceAnswer,
    DeviceAuthorization,
    DeviceLogin,
    LoginParams,
    NewToken,
    TokenList,
)
from ludus.registry.types.strict_json import read_strict

M = TypeVar("M", bound=WireModel)

ANSWER_SECONDS: Final = 60.0
"""How long a request may take, except uploads and downloads."""

TRANSFER_SECONDS: Final = 900.0
"""How long an upload or a download may take."""

ANSWER_BYTES: Final = 16 * 1024 * 1024
"""The largest answer that is read, except a download."""

_CHUNK: Final = 1024 * 1024


class RegistryClient:
    """A connection to a hub; an async context manager.

    Args:
        hub: the hub's address.
        token: the token for requests that change something, and for what is private.

    Raises:
        InvalidParams: the address is not one of HTTP.
    """

    def __init__(self, hub: str, token: str | None = None) -> None:
        self.hub = normal_address(hub)
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(trust_env=True)
        return self

    async def __aexit__(self, *reason: object) -> None:
        if self._session is not None:
            await self._session.close()

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def search(self, text: str = "", tags: Sequence[str] = (), page: int = 1) -> SearchResult:
        """Return one page of the packages that have all words and all tags."""
        query = [("q", text), ("page", str(page)), *(("tag", tag) for tag in tags)]
        return await self._call("GET", "/environments", SearchResult, params=query)

    async def package(self, package: str) -> PackageSummary:
        """Return a package as the catalog shows it.

        Raises:
            PackageNotFound: there is no such package.
        """
        return await self._call("GET", f"/environments/{_path(package)}", PackageSummary)

    async def versions(self, package: str) -> VersionList:
        """Return all versions of a package, the newest first.

        Raises:
            PackageNotFound: there is no such package.
        """
        return await self._call("GET", f"/environments/{_path(package)}/versions", VersionList)

    async def version(self, package: str, version: str | None = None) -> VersionInfo:
        """Return a version of a package; by default the latest.

        Raises:
            PackageNotFound: there is no such package or version.
        """
        where = f"/environments/{_path(package)}/versions/{quote(version or 'latest', safe='')}"
        return await self._call("GET", where, VersionInfo)

    async def owners(self, package: str) -> OwnerList:
        """Return who may publish versions of a package."""
        return await self._call("GET", f"/environments/{_path(package)}/owners", OwnerList)

    async def keys(self, owner: str) -> KeyList:
        """Return the public keys of an owner, as the hub states them."""
        return await self._call("GET", f"/owners/{quote(owner, safe='')}/keys", KeyList)

    async def distributions(self) -> frozenset[str]:
        """Return the names of all packages on the hub that its token may see, as pip and uv know them."""
        accept = "application/vnd.pypi.simple.v1+json"
        async with self._request("GET", f"{self.hub}/index/simple/", TRANSFER_SECONDS, accept) as response:
            body = await _body(response)
        try:
            return frozenset(str(one["name"]) for one in json.loads(body)["projects"])
        except (ValueError, KeyError, TypeError):
            raise ProtocolViolation(f"the hub {self.hub} sent what is no list of projects") from None

    async def download(self, info: VersionInfo, folder: Path) -> Path:
        """Download a wheel into a folder, check its digest while it arrives, and return its path.

        Raises:
            DigestMismatch: other bytes arrived than those that `info.sha256` names.
        """
        target = folder / Path(info.filename).name
        digest, size = hashlib.sha256(), 0
        async with self._request("GET", info.url, TRANSFER_SECONDS) as response:
            with target.open("wb") as file:
                async for piece in response.content.iter_chunked(_CHUNK):
                    size += len(piece)
                    if size > info.size:
                        break
                    digest.update(piece)
                    file.write(piece)
        if size != info.size or digest.hexdigest() != info.sha256:
            target.unlink(missing_ok=True)
            raise DigestMismatch(
                f"the wheel of {info.id} {info.version} that the hub sent is not the one with sha256 {info.sha256}; it "
                "was changed after it was published. Do not install it, and report this to the hub's operator"
            )
        return target

    # ── changing ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self, wheel: Path, manifest: Manifest, card: str, signed: Signed, validation: ValidationSummary | None,
        *, private: bool = False,
    ) -> VersionInfo:  # fmt: skip
        """Upload a version. A private one makes a new package private, and is refused by a public one.

        Raises:
            Unauthenticated, Forbidden: the token is missing, or is not one that may publish this.
            NameRefused, WheelRefused, ManifestRefused, SignatureRefused: the hub does not accept it.
            VersionConflict: the version exists with other content.
        """
        form = aiohttp.FormData()
        form.add_field("manifest", manifest.model_dump_json(by_alias=True))
        form.add_field("card", card)
        form.add_field("signature", signed.model_dump_json(by_alias=True))
        if validation is not None:
            form.add_field("validation", validation.model_dump_json(by_alias=True))
        if private:
            form.add_field("visibility", "private")
        with wheel.open("rb") as file:
            form.add_field("wheel", file, filename=wheel.name, content_type="application/octet-stream")
            where = f"/environments/{_path(manifest.id)}/versions"
            return await self._call("POST", where, VersionInfo, seconds=TRANSFER_SECONDS, data=form)

    async def yank(self, package: str, version: str, reason: str | None) -> VersionInfo:
        """Yank a version for a reason; without one, undo that."""
        where = f"/environments/{_path(package)}/versions/{quote(version, safe='')}/yank"
        if reason is None:
            return await self._call("DELETE", where, VersionInfo)
        return await self._call("POST", where, VersionInfo, json={"reason": reason})

    async def blocks(self) -> BlockList:
        """Return all blocked wheels, for an administrator."""
        return await self._call("GET", "/blocks", BlockList)

    async def find_block(self, sha256: str) -> BlockInfo | None:
        """Return the block of a wheel; None if it is not blocked."""
        try:
            return await self._call("GET", f"/blocks/{sha256}", BlockInfo)
        except NotFound:  # a hub of an earlier version has no such address, either
            return None

    async def block(self, sha256: str, reason: str) -> BlockInfo:
        """Block a wheel, as an administrator."""
        return await self._call("PUT", f"/blocks/{sha256}", BlockInfo, json={"reason": reason})

    async def unblock(self, sha256: str) -> BlockInfo:
        """Undo a block, and return what it was."""
        return await self._call("DELETE", f"/blocks/{sha256}", BlockInfo)

    async def add_owner(self, package: str, other: str) -> OwnerList:
        """Let another principal publish versions of a package."""
        return await self._call("PUT", f"/environments/{_path(package)}/owners/{quote(other, safe='')}", OwnerList)

    async def remove_owner(self, package: str, other: str) -> OwnerList:
        """Take that right away again."""
        return await self._call("DELETE", f"/environments/{_path(package)}/owners/{quote(other, safe='')}", OwnerList)

    async def add_key(self, owner: str, key: str) -> KeyList:
        """Add a key with which an owner's versions may be signed."""
        return await self._call("POST", f"/owners/{quote(owner, safe='')}/keys", KeyList, json={"key": key})

    async def remove_key(self, owner: str, key: str) -> KeyList:
        """Remove one of those keys."""
        return await self._call("DELETE", f"/owners/{quote(owner, safe='')}/keys", KeyList, params=[("key", key)])

    async def access(self, package: str) -> Access:
        """Return whether a package is private, and who may read it."""
        return await self._call("GET", f"/environments/{_path(package)}/access", Access)

    async def set_private(self, package: str, private: bool) -> Access:
        """Make a package private or public."""
        return await self._call("PUT", f"/environments/{_path(package)}/access", Access, json={"private": private})

    async def add_reader(self, package: str, other: str) -> Access:
        """Let another principal read a package while it is private."""
        return await self._call("PUT", f"/environments/{_path(package)}/readers/{quote(other, safe='')}", Access)

    async def remove_reader(self, package: str, other: str) -> Access:
        """Take that right away again."""
        return await self._call("DELETE", f"/environments/{_path(package)}/readers/{quote(other, safe='')}", Access)

    # ── the account ────────────────────────────────────────────────────────────────────────────────────────────────

    async def login(self, params: LoginParams) -> CreatedToken:
        """Make a token with a name and a password.

        Raises:
            Unauthenticated: they are wrong.
        """
        return await self._call("POST", "/login", CreatedToken, json=params.model_dump(mode="json", by_alias=True))

    async def begin_device_login(self, wanted: DeviceLogin) -> DeviceAuthorization:
        """Begin a sign-in that a person confirms in a browser.

        Raises:
            Conflict: the hub has no accounts.
        """
        return await self._call("POST", "/login/device", DeviceAuthorization, json=wanted.model_dump(mode="json"))

    async def device_token(self, device_code: str) -> DeviceAnswer:
        """Ask for the token of such a sign-in.

        Raises:
            Forbidden: the person has refused.
            Unauthenticated: the sign-in has ended.
        """
        return await self._call("POST", "/login/device/token", DeviceAnswer, json={"device_code": device_code})

    async def account(self) -> AccountInfo:
        """Return the account of the token."""
        return await self._call("GET", "/account", AccountInfo)

    async def tokens(self) -> TokenList:
        """Return the tokens of the account."""
        return await self._call("GET", "/account/tokens", TokenList)

    async def create_token(self, params: NewToken) -> CreatedToken:
        """Make a token."""
        body = params.model_dump(mode="json", by_alias=True)
        return await self._call("POST", "/account/tokens", CreatedToken, json=body)

    async def revoke_token(self, token: int) -> None:
        """Revoke the token with an id."""
        async with self._request("DELETE", f"{self.hub}/api/v1/account/tokens/{token}", ANSWER_SECONDS):
            pass

    async def audit(self) -> AuditList:
        """Return what was done with the account."""
        return await self._call("GET", "/account/audit", AuditList)

    async def export(self) -> bytes:
        """Return everything that the hub keeps of the account, as JSON."""
        async with self._request("GET", f"{self.hub}/api/v1/account/export", TRANSFER_SECONDS) as response:
            return await response.read()

    async def delete_account(self, password: str) -> None:
        """Delete the account."""
        where = f"{self.hub}/api/v1/account"
        async with self._request("DELETE", where, ANSWER_SECONDS, json={"password": password}):
            pass

    # ── requests ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _call(
        self, method: str, path: str, model: type[M], *, seconds: float = ANSWER_SECONDS, **options: Any
    ) -> M:
        async with self._request(method, f"{self.hub}/api/v1{path}", seconds, **options) as response:
            body = await _body(response)
        try:
            read_strict(body, f"the answer of the hub {self.hub}")  # it may hold what a publisher has signed
            return model.model_validate_json(body)
        except ParseError as error:
            raise ProtocolViolation(error.message) from None
        except ValidationError as error:
            raise ProtocolViolation(f"the hub {self.hub} sent what is no {model.__name__}: {error}") from None

    @asynccontextmanager
    async def _request(
        self, method: str, url: str, seconds: float, accept: str | None = None, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None, "use the client as an async context manager"
        ours = urlsplit(url).netloc == urlsplit(self.hub).netloc
        headers = {**(self._headers if ours else {}), **({"accept": accept} if accept else {})}
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=10.0)
        try:
            async with self._session.request(
                method, url, headers=headers, timeout=timeout, allow_redirects=False, **options
            ) as response:
                if response.status >= 300:
                    raise _error(self.hub, response.status, await _body(response))
                yield response
        except TimeoutError:
            raise DeadlineExceeded(f"the hub {self.hub} did not answer within {seconds:g} s; try again") from None
        except aiohttp.ClientError as error:
            raise ConnectionFailed(
                f"the hub {self.hub} cannot be reached: {error}; start one with `ludus hub`, or name another with --hub"
            ) from None


def normal_address(hub: str) -> str:
    """Return the address of a hub without a slash at its end.

    Raises:
        InvalidParams: it is not an address of HTTP.
    """
    parts = urlsplit(hub)
    if (
        parts.scheme not in ("http", "https")
        or not parts.netloc
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise InvalidParams(f"{hub!r} is not the address of a hub; write it as https://hub.example.org")
    return hub.rstrip("/")


def _path(package: str) -> str:
    owner, slash, name = package.partition("/")
    if not (owner and slash and name) or "/" in name:
        raise InvalidParams(f"{package!r} is not the name of an environment on a hub; write it as owner/name")
    return f"{quote(owner, safe='')}/{quote(name, safe='')}"


async def _body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_chunked(64 * 1024):
        body += piece
        if len(body) > ANSWER_BYTES:
            raise ProtocolViolation(f"the hub sent an answer of more than {ANSWER_BYTES} bytes")
    return bytes(body)


def _error(hub: str, status: int, body: bytes) -> Exception:
    try:
        thing = json.loads(body)["error"]
        code, message, data = int(thing["code"]), str(thing["message"]), thing.get("data") or {}
    except (ValueError, KeyError, TypeError):
        return ProtocolViolation(f"{hub} answered with the status {status} and is perhaps not a hub; check the address")
    return registry_error(code, message, {**(data if isinstance(data, Mapping) else {}), "hub": hub})
