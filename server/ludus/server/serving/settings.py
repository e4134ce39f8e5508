"""The settings of one server process."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from ludus.protocol.workers import WORKER_PATTERN
from ludus.server.auth.limits import DEFAULT_STRANGER_REQUESTS, DEFAULT_WRONG_TOKENS, TokenLimits
from ludus.server.durability.database_urls import is_database
from ludus.server.runtime.limits import ServerLimits
from ludus.server.tasks.formats import Check
from ludus.server.web.guard import LOOPBACK_HOSTS, Origins
from ludus.server.web.logs import LogFormat, LogLevel
from ludus.server.web.proxies import ProxyHeaders, ProxyRules, parse_network, parse_public_url, parse_root_path

__all__ = ["ServerSettings", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is loopback, which no other machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ServerSettings(BaseModel):
    """The settings of a server: where it listens, what it trusts, what it logs. Times are in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """The address to listen on; every address except loopback needs tokens."""
    port: int = Field(default=8000, ge=0, le=65535)
    """The port; 0 takes a free one."""
    token_file: Path | None = None
    """The file of trainer tokens; if None, `LUDUS_TOKEN_FILE` and `LUDUS_TOKENS` are used."""
    capability_key_file: Path | None = None
    """The file of the key that signs play capabilities; if None, `LUDUS_CAPABILITY_KEY` is used, else a random key."""
    capability_seconds: float = Field(default=3600.0, gt=0)
    """How long a play capability is valid."""
    public_url: Annotated[str, AfterValidator(parse_public_url)] | None = None
    """The address that clients use, such as `https://lab.example.org/rl`, when a proxy forwards to the server.
    Play URLs are then made from it, and not from the headers of requests."""
    root_path: Annotated[str, AfterValidator(parse_root_path)] = ""
    """The path prefix under which clients reach the server; by default the path of `public_url`."""
    trusted_proxies: tuple[Annotated[str, AfterValidator(lambda text: str(parse_network(text)))], ...] = ()
    """Addresses or networks of proxies whose forwarded headers are used; those of other senders are ignored."""
    proxy_headers: ProxyHeaders = "x-forwarded"
    """The headers those proxies set: `X-Forwarded-For`, `-Proto`, `-Host`, `-Port` and `-Prefix`, or `Forwarded`."""
    allow_hosts: tuple[str, ...] = ()
    """Additional `Host` names to accept, `*` for any. A server that is not on loopback accepts any by default."""
    allow_origins: tuple[str, ...] = ()
    """Origins of pages that may use this server. Pages of this machine may always use a server on loopback."""
    cors: bool = False
    """Whether pages of `allow_origins` may also read the answers."""
    journal: Path | None = None
    """The file in which episodes survive the death of the server; if None, they end with it. The URL of a PostgreSQL
    database, `postgresql://…`, is moved to `journal_url`."""
    journal_url: str | None = Field(default=None, repr=False)
    """The URL of the database in which episodes survive instead."""
    journal_sync: Literal["normal", "full"] = "normal"
    """What the journal survives: `normal` the death of the process, `full` also the loss of power; of a database,
    `normal` also the loss of power, and `full` that of the machine, if the database has a synchronous standby."""
    worker: Annotated[str, Field(pattern=f"^{WORKER_PATTERN}$")] | None = None
    """The worker id of this process, which its episodes' ids then name, so that a proxy in front of several servers can
    route requests by them: 1 to 16 lower-case letters and digits. None for a server that is alone."""
    workers: int | None = Field(default=None, ge=1, le=256)
    """How many server processes serve the environments behind a gateway; None for one process without a gateway."""
    max_workers: int | None = Field(default=None, ge=1, le=256)
    """The most workers; the server adds some above `workers`, and ends them, by how busy they are. None for a fixed
    number."""
    scale_up_load: float = Field(default=256.0, gt=0)
    """A worker is added while the workers have more than this many episodes each, or starts wait."""
    scale_down_load: float = Field(default=128.0, ge=0)
    """A worker is ended while the others would have at most this many episodes each."""
    scale_up_seconds: float = Field(default=5.0, ge=0)
    """How long that must be so before a worker is added."""
    scale_down_seconds: float = Field(default=60.0, ge=0)
    """How long that must be so before a worker is ended."""
    ray: str | None = None
    """The address of the Ray cluster that runs the workers: `auto`, `HOST:PORT`, or `local` for a Ray that is started
    on this machine; None for processes of this machine."""
    ray_cpus: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """The CPUs that Ray reserves for each worker."""
    ray_memory: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The memory that Ray reserves for each worker, in GiB."""
    ray_working_dir: Path | None = None
    """The folder that Ray copies to each node, and in which the workers run there."""
    ray_name: str | None = Field(default=None, min_length=1, max_length=100)
    """The name under which clients find the server in the Ray cluster."""
    drain_seconds: float = Field(default=3600.0, ge=0)
    """How long a worker without a journal may finish its episodes before it is restarted."""
    unresponsive_seconds: float = Field(default=10.0, gt=0)
    """How long a worker may leave health checks unanswered, without a sign of life of its event loop, before it is
    killed and replaced."""
    difficulty: tuple[Path, ...] = ()
    """Difficulty files (`ludus calibrate --difficulty`) that curricula begin with, at most one for each split."""
    check: Check = "none"
    """Of which environments one episode is played before requests are answered; one that fails refuses the start."""
    metrics_open: bool = False
    """Whether `/metrics` needs no token."""
    limits: ServerLimits = ServerLimits()
    token_limits: TokenLimits = TokenLimits()
    """What each token may use, unless the token file gives it limits of its own; without tokens, all callers
    together."""
    wrong_tokens_per_minute: float | None = Field(default=DEFAULT_WRONG_TOKENS, gt=0, allow_inf_nan=False)
    """How many wrong tokens one client address may send in a minute, and at one time; None for no limit."""
    stranger_requests_per_second: float | None = Field(default=DEFAULT_STRANGER_REQUESTS, gt=0, allow_inf_nan=False)
    """How many requests without a valid token or play URL one client address may send in a second, on average, to a
    server with tokens; five times as many at one time. None for no limit."""
    usage_file: Path | None = None
    """The file in which the worker processes of one machine count together what tokens use; None for one process."""
    request_seconds: float = Field(default=30.0, gt=0)
    """How long a request may take to arrive, head and body."""
    keep_alive_seconds: int = Field(default=75, ge=1)
    """How long an idle connection is kept."""
    ping_seconds: float = Field(default=20.0, gt=0)
    """The interval between pings on a channel."""
    pong_seconds: float = Field(default=60.0, gt=0)
    """How long a ping on a channel may stay unanswered. It is long because trainers block their event loops."""
    shutdown_seconds: float = Field(default=10.0, ge=0)
    """How long running steps may go on once the server stops."""
    log_format: LogFormat = "console"
    log_level: LogLevel = "INFO"
    access_log: bool = False
    """Whether every request is logged."""

    @model_validator(mode="before")
    @classmethod
    def _move_url(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(journal := value.get("journal"), str) and is_database(journal):
            return {**value, "journal": None, "journal_url": journal}
        return value

    @property
    def durable(self) -> bool:
        """Whether episodes survive the death of the server."""
        return self.journal is not None or self.journal_url is not None

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    @field_validator("max_workers")
    @classmethod
    def _most_is_most(cls, maximum: int | None, info: ValidationInfo) -> int | None:
        if maximum is not None and maximum < (info.data.get("workers") or 1):
            raise ValueError(f"--workers {info.data['workers']}-{maximum}: the first number must be the smaller one")
        return maximum

    @field_validator("scale_down_load")
    @classmethod
    def _bounds_apart(cls, low: float, info: ValidationInfo) -> float:
        high = info.data.get("scale_up_load", low + 1)
        if low >= high:
            raise ValueError(
                f"must be less than --scale-up-load ({high:g}), or workers would be added and ended in turn"
            )
        return low

    @field_validator("ray")
    @classmethod
    def _no_ray_client(cls, address: str | None) -> str | None:
        if address is not None and address.startswith("ray://"):
            raise ValueError(
                f"{address} is an address of the Ray client, whose workers do not end with the server: run "
                "`ludus serve` on a node of the cluster with --ray auto, or give HOST:PORT of the cluster's head"
            )
        return address

    @model_validator(mode="after")
    def _one_prefix(self) -> Self:
        path = urlsplit(self.public_url).path if self.public_url else ""
        if path and self.root_path and path != self.root_path:
            raise ValueError(f"the public URL has the path {path}, the root path is {self.root_path}: leave one out")
        return self

    @property
    def proxies(self) -> ProxyRules:
        """The rules for the public address and the proxies in front of the server."""
        path = urlsplit(self.public_url).path if self.public_url else ""
        trusted = tuple(map(parse_network, self.trusted_proxies))
        return ProxyRules(self.public_url or "", self.root_path or path, trusted, self.proxy_headers)

    @property
    def origins(self) -> Origins:
        """The `Host` and `Origin` headers that are accepted."""
        hosts = self.allow_hosts
        if self.on_loopback:
            public = (urlsplit(self.public_url).hostname or "",) if self.public_url else ()
            hosts = (*LOOPBACK_HOSTS, self.host, *public, *hosts)
        return Origins(hosts if hosts and "*" not in hosts else None, self.allow_origins)
