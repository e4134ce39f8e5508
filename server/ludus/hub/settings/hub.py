"""The settings of a hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ludus.hub.core.blobs import BlobStore
from ludus.hub.core.object_store import open_blobs
from ludus.hub.settings.endpoints import EndpointSettings
from ludus.hub.settings.openid import OpenIdSettings
from ludus.hub.settings.people import PeopleSettings
from ludus.hub.settings.results import ResultLimits
from ludus.server.serving.settings import is_loopback
from ludus.server.web.guard import LOOPBACK_HOSTS, Origins
from ludus.server.web.proxies import parse_public_url

MEGABYTE = 1024 * 1024

_OWN_PAGES = "a hub takes its own pages only, at --public-url if a proxy forwards to it"

_BLOBS = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?")


class HubLimits(BaseModel):
    """The limits on uploads. Sizes are in bytes, times in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    wheel_bytes: int = Field(default=100 * MEGABYTE, ge=1024)
    """The largest wheel."""
    unpacked_bytes: int = Field(default=500 * MEGABYTE, ge=1024)
    """The most bytes of all files of a wheel together, unpacked."""
    wheel_files: int = Field(default=10_000, ge=1)
    """The most files of a wheel."""
    compression_ratio: int = Field(default=200, ge=2)
    """How many times its compressed size a file above 1 MiB may have."""
    manifest_bytes: int = Field(default=MEGABYTE, ge=1024)
    """The largest manifest."""
    card_bytes: int = Field(default=256 * 1024, ge=1024)
    """The largest card."""
    validation_bytes: int = Field(default=2 * MEGABYTE, ge=1024)
    """The largest validation report."""
    uploads: int = Field(default=32, ge=1)
    """The most uploads that are received at one time; others wait."""
    upload_seconds: float = Field(default=300.0, gt=0)
    """The most seconds for one upload to arrive, and for waiting before that."""

    @property
    def body_bytes(self) -> int:
        """The largest request."""
        return self.wheel_bytes + self.manifest_bytes + self.card_bytes + self.validation_bytes + MEGABYTE


def parse_blobs_url(text: str) -> str:
    """Return the address of an object store.

    Raises:
        ValueError: it has another form than `s3://BUCKET` or `s3://BUCKET/PREFIX`.
    """
    if not _BLOBS.fullmatch(text):
        raise ValueError(f"{text!r} is no object store; write it like s3://BUCKET or s3://BUCKET/PREFIX")
    return text


class HubSettings(BaseModel):
    """The settings of a hub: where it listens, where its data lies, and its limits."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """The address to listen on; every address except loopback needs accounts or tokens."""
    port: int = Field(default=8400, ge=0, le=65535)
    """The port; 0 takes a free one."""
    data: Path = Path("ludus-hub")
    """The folder of the wheels, of the hub's own key, and of the SQLite database."""
    database_url: str | None = Field(default=None, repr=False)
    """`postgresql://USER@HOST/DATABASE`, or `sqlite:///FILE`; by default a SQLite file in the data folder."""
    blobs: Annotated[str, AfterValidator(parse_blobs_url)] | None = None
    """`s3://BUCKET/PREFIX` for wheels in an object store, whose credentials are in the usual environment variables; by
    default they lie in the data folder."""
    blob_cache_bytes: int = Field(default=2048 * MEGABYTE, ge=0)
    """The most bytes of files from an object store that are kept in the data folder and are not in use."""
    blob_seconds: float = Field(default=120.0, gt=0)
    """How long a request to an object store may take."""
    public_url: Annotated[str, AfterValidator(parse_public_url)] | None = None
    """The address that clients use when a proxy forwards to the hub."""
    peer_url: Annotated[str, AfterValidator(parse_public_url)] | None = None
    """Where other processes of this hub, on the same database, reach this one. They then pass requests on to it that
    only it can answer."""
    token_file: Path | None = None
    """The operator's file of tokens; a token's name is the owner for whom it may publish."""
    allow_hosts: tuple[str, ...] = ()
    """Additional `Host` names to accept; a hub that is not on loopback accepts any."""
    seed: bool = True
    """Whether the hub publishes the built-in library in itself when it starts."""
    limits: HubLimits = HubLimits()
    endpoints: EndpointSettings = EndpointSettings()
    """How published environments run."""
    results: ResultLimits = ResultLimits()
    people: PeopleSettings = PeopleSettings()
    """Who may register, and how many requests are answered."""
    openid: OpenIdSettings | None = None
    """The OpenID provider through which people sign in; None for none."""

    @model_validator(mode="after")
    def _known_database(self) -> Self:
        url = self.database_url
        if url is not None and not url.startswith(("postgresql://", "postgres://", "sqlite:///")):
            raise ValueError("the database must be postgresql://USER@HOST/DATABASE or sqlite:///FILE")
        return self

    @model_validator(mode="after")
    def _endpoints_apart(self) -> Self:
        domain = self.endpoints.domain
        if domain == "localhost":
            return self
        names = [host.partition(":")[0].lower() for host in self.allow_hosts if not host.startswith("*.")]
        if self.public_url is not None:
            names.append(urlsplit(self.public_url).hostname or "")
        if not names and not self.on_loopback:
            raise ValueError(f"endpoints.domain {domain!r} needs public_url, to be kept apart from the hub's own name")
        for name in names:
            if f".{domain}".endswith(f".{name}") or f".{name}".endswith(f".{domain}"):
                raise ValueError(
                    f"endpoints.domain {domain!r} and the hub's own name {name!r} lie one below the other; what "
                    "untrusted code answers below that domain would belong to the site of the hub: choose a domain "
                    "apart from it, best one that you register for endpoints"
                )
        return self

    def open_blobs(self) -> BlobStore:
        """Return the store of wheels.

        Raises:
            AuthoringError: the object store's address cannot be used.
        """
        return open_blobs(self.data, self.blobs, self.blob_cache_bytes, self.blob_seconds)

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the hub."""
        return is_loopback(self.host)

    @property
    def origins(self) -> Origins:
        """The `Host` and `Origin` headers to accept."""
        pages = (self.public_url.rstrip("/"),) if self.public_url else ()
        if not self.on_loopback and not self.allow_hosts:
            return Origins(hosts=None, pages=pages, advice=_OWN_PAGES)
        below = f".{self.endpoints.domain}"
        hosts = (*LOOPBACK_HOSTS, f"*{below}", *self.allow_hosts)
        # Other programs of this machine, and endpoints, answer under these names, too.
        page_hosts = tuple(host for host in self.allow_hosts if not host.partition(":")[0].endswith(below))
        return Origins(hosts=hosts, pages=pages, page_hosts=page_hosts, advice=_OWN_PAGES)
