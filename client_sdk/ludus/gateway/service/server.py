"""The HTTP side of the rollout service: routes, errors, and streams of lines that can be resumed.

POST   /rollouts                  a request; answers with the stream of its lines
GET    /rollouts                  the jobs of this token
GET    /rollouts/{job}            the state of a job
GET    /rollouts/{job}/lines      the stream from line `from` on; earlier lines are acknowledged, and may be dropped
DELETE /rollouts/{job}            cancel a job, or forget one that has ended
GET    /status                    the workers, and how much runs
GET    /schema                    the JSON Schema of request and lines
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from aiohttp import web
from pydantic import ValidationError

from ludus.gateway.service.jobs import Job
from ludus.gateway.service.scheduler import Scheduler, first_of
from ludus.gateway.service.schema import MOST_SEED, RolloutRequest, json_schema
from ludus.gateway.service.tokens import Guard
from ludus.protocol import errors as e
from ludus.protocol.bounds import check_json
from ludus.protocol.messages import describe_invalid

BODY_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of a request."""
PROGRESS_SECONDS: Final = 10.0
"""A stream without lines gets a sign of life after so long."""
SEND_BYTES: Final = 64 * 1024
"""The kernel's buffer of a stream, which is small so that a slow reader is noticed soon."""
FLUSH_SECONDS: Final = 10.0
"""How long streams may take to deliver their last lines when the service stops."""
SWEEP_SECONDS: Final = 1.0
KEY_CHARS: Final = 200

_logger = logging.getLogger("ludus.rollouts")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The settings of a rollout service."""

    host: str = "127.0.0.1"
    """The address to listen at; every address except loopback needs `token_file`."""
    port: int = 8100
    """The port; a free one for 0."""
    token_file: Path | None = None
    """A file of tokens, of `ludus token create`."""
    workers: int = 1
    """The number of worker processes."""
    concurrency: int = 64
    """The most episodes that run at the same time, over all jobs."""
    max_jobs: int = 64
    """The most jobs that are kept, with those that have ended and were not deleted."""
    keep_seconds: float = 3600.0
    """How long a job is kept without a reader. One that runs is canceled then; one that has ended is forgotten."""
    spool_bytes: int = 1024 * 1024 * 1024
    """The most bytes of lines that are kept of a job after they were sent."""
    spool_folder: Path | None = None
    """The folder for lines; a temporary one if None."""
    drain_seconds: float = 30.0
    """How long episodes may go on when the service stops."""
    worker_seconds: float = 60.0
    """How long a worker may be silent before it is replaced. It says every few seconds that it is alive."""
    template_seconds: float = 5.0
    """How long a caller's chat template may take to render a conversation."""
    tokenizer: str | None = None
    """The tokenizer of requests that name none."""
    harnesses: Mapping[str, str] = field(default_factory=dict[str, str])
    """`command …` or `worker …` by the name under which requests may use it."""
    any_harness: bool = False
    """Whether requests may name any program as a harness. Then a caller can run programs on this machine."""


class RolloutService:
    """The service. Use it as an async context manager: it starts the workers and listens, and drains at the end.

    Args:
        settings: see `ServiceSettings`.

    Raises:
        AuthoringError: tokens are missing or cannot be used.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings: Final[ServiceSettings] = settings
        """The settings."""
        self.url = ""
        """The address of the service, once it listens."""
        self.hurry: Final[asyncio.Event] = asyncio.Event()
        """Set it to cancel the episodes that still run when the service stops, instead of waiting for them."""
        self._guard = Guard(settings.host, settings.token_file)
        self._keys: dict[tuple[str, str], tuple[str, str]] = {}
        """The job and the digest of the request, by token and idempotency key."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._scheduler: Scheduler
        self._runner: web.AppRunner
        self._sweeping: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        settings = self.settings
        self._folder = tempfile.TemporaryDirectory(
            prefix="ludus-rollouts-", dir=settings.spool_folder, ignore_cleanup_errors=True
        )
        first = {
            "tokenizer": settings.tokenizer,
            "harnesses": dict(settings.harnesses),
            "alive_seconds": settings.worker_seconds / 5,
            "template_seconds": settings.template_seconds,
        }
        folder = Path(self._folder.name)
        self._scheduler = Scheduler(settings.concurrency, settings.workers, settings.worker_seconds, folder, first)
        self._runner = web.AppRunner(self._app(), access_log=None, handle_signals=False, shutdown_timeout=1)
        try:
            await self._scheduler.pool.start()
            await self._runner.setup()
            site = web.TCPSite(self._runner, settings.host, settings.port)
            await site.start()
        except BaseException:
            await self._close()
            raise
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.url = f"http://{shown}:{self._runner.addresses[0][1]}"
        self._sweeping = asyncio.create_task(self._sweep())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._sweeping.cancel()
        await self._scheduler.drain(self.settings.drain_seconds, self.hurry)
        until = time.monotonic() + FLUSH_SECONDS
        jobs = self._scheduler.jobs.values()
        while any(job.readers for job in jobs) and (left := until - time.monotonic()) > 0:
            await first_of(*(job.news(left) for job in jobs if job.readers))
        await self._close()

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self._scheduler.pool.stop()
        for job in self._scheduler.jobs.values():
            job.spool.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._answer_errors], client_max_size=BODY_BYTES)
        app.router.add_post("/rollouts", self._post)
        app.router.add_get("/rollouts", self._list)
        app.router.add_get("/rollouts/{job}", self._get)
        app.router.add_get("/rollouts/{job}/lines", self._lines)
        app.router.add_delete("/rollouts/{job}", self._delete)
        app.router.add_get("/status", self._status)
        app.router.add_get("/schema", self._schema)
        return app

    @web.middleware
    async def _answer_errors(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            request["owner"] = self._guard.check(request.headers)
            return await handler(request)
        except web.HTTPRequestEntityTooLarge:
            return _error(e.PayloadTooLarge(f"a request may have at most {BODY_BYTES} bytes"))
        except web.HTTPException as error:
            found = e.MethodNotFound(f"there is no {request.method} {request.path[:100]}; see GET /schema")
            return _error(found, status=error.status)
        except e.LudusError as error:
            return _error(error)
        except ConnectionError:
            raise
        except Exception:
            _logger.exception("%s %s failed", request.method, request.path)
            return _error(e.InternalError("the service failed; its log has the reason"))

    # ── routes ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _post(self, http: web.Request) -> web.StreamResponse:
        owner: str = http["owner"]
        key = http.headers.get("Idempotency-Key", "")
        if len(key) > KEY_CHARS:
            raise e.InvalidParams(f"the Idempotency-Key has {len(key)} characters; the most are {KEY_CHARS}")
        body = await http.read()
        digest = hashlib.sha256(body).hexdigest()
        name, known = self._keys.get((owner, key), ("", ""))
        job = self._scheduler.jobs.get(name) if key else None
        if job is None:
            request, raw = _parsed(body)
            job = self._accept(owner, request, raw)
            if key:
                self._keys[owner, key] = (job.name, digest)
        elif known != digest:
            raise e.KeyConflict(f"the Idempotency-Key {key!r} was used for another request")
        try:
            await asyncio.shield(job.checked)
        except e.LudusError as error:
            self._forget(job)
            if isinstance(error, e.RequestError):  # a 401 would look like a refusal of the caller's own token
                return _error(error, status=422)
            raise
        if not job.request.stream:
            return _json(job.status(), 202, {"Location": f"/rollouts/{job.name}"})
        return await self._stream(http, job, job.spool.first)

    def _accept(self, owner: str, request: RolloutRequest, raw: dict[str, Any]) -> Job:
        settings, jobs = self.settings, self._scheduler.jobs
        harness = request.harness
        if harness is not None and harness not in settings.harnesses and not settings.any_harness:
            names = ", ".join(sorted(settings.harnesses)) or "none"
            raise e.Forbidden(
                f"there is no harness {harness[:60]!r}; the service was started with: {names}. With --any-harness it "
                "runs programs that a request names"
            )
        if self._scheduler.draining:
            raise e.ShuttingDown("the service stops, and takes no further jobs")
        if len(jobs) >= settings.max_jobs and (done := next((j for j in jobs.values() if self._unread(j)), None)):
            self._forget(done)
        if len(jobs) >= settings.max_jobs:
            raise e.CapacityError(f"the service has {len(jobs)} jobs, its most (--max-jobs)", retryAfter=5.0)
        seed = request.seed if request.seed is not None else secrets.randbelow(MOST_SEED)
        assert self._folder is not None
        job = Job(secrets.token_hex(12), owner, request, raw, seed, Path(self._folder.name))
        self._scheduler.add(job)
        return job

    def _unread(self, job: Job) -> bool:
        """Return whether a job has ended, was read to its end, and has no reader."""
        return job.ended.is_set() and not job.readers and job.sent >= job.spool.count

    async def _list(self, http: web.Request) -> web.StreamResponse:
        own = [job.status() for job in self._scheduler.jobs.values() if job.owner == http["owner"]]
        return _json({"jobs": own})

    async def _get(self, http: web.Request) -> web.StreamResponse:
        return _json(self._job(http).status())

    async def _delete(self, http: web.Request) -> web.StreamResponse:
        """Cancel a job that runs, and answer when its episodes have ended; forget a job that has ended."""
        job = self._job(http)
        if job.ended.is_set():
            self._forget(job)
        else:
            self._scheduler.cancel(job, "canceled")
            await job.ended.wait()
        return _json(job.status())

    async def _status(self, http: web.Request) -> web.StreamResponse:
        scheduler = self._scheduler
        workers = [
            {"pid": worker.process.pid, "running": len(worker.places)} for worker in scheduler.pool.workers.values()
        ]
        fields = {"workers": workers, "worker_deaths": scheduler.pool.deaths, "running": scheduler.running}
        settings = {"concurrency": self.settings.concurrency, "harnesses": sorted(self.settings.harnesses)}
        return _json({**fields, **settings, "jobs": len(scheduler.jobs), "draining": scheduler.draining})

    async def _schema(self, http: web.Request) -> web.StreamResponse:
        return _json(json_schema())

    async def _lines(self, http: web.Request) -> web.StreamResponse:
        job = self._job(http)
        text = http.query.get("from", "0")
        if set(http.query) - {"from"} or not text.isdecimal() or len(text) > 9:
            raise e.InvalidParams("the only parameter of a stream is from=N, the number of the first line")
        first = int(text)
        if first > job.spool.count:
            raise e.InvalidParams(f"from={first}: the job has {job.spool.count} lines so far")
        if first < job.spool.first:
            raise e.NotFound(f"line {first} is not kept any more; the first that is kept is {job.spool.first}")
        job.spool.drop_before(first)
        return await self._stream(http, job, first)

    # ── streams ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _stream(self, http: web.Request, job: Job, line: int) -> web.StreamResponse:
        """Send the lines of a job from `line` on, until its last one, or until another stream of it begins."""
        response = web.StreamResponse(
            headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store", "X-Ludus-Job": job.name}
        )
        await response.prepare(http)
        if http.transport is not None and (raw := http.transport.get_extra_info("socket")) is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        job.stream += 1
        own = job.stream
        job.readers += 1
        job.sent = line
        job.wake()
        try:
            await self._write(response, _job_line(job))
            while job.stream == own:
                if line < job.spool.count:
                    await self._write(response, job.spool.read(line))
                    line += 1
                    self._delivered(job, own, line)
                elif job.ended.is_set():
                    break
                else:
                    before = time.monotonic()
                    await job.news(PROGRESS_SECONDS)
                    if time.monotonic() - before >= PROGRESS_SECONDS:
                        await self._write(response, _job_line(job))
            await response.write_eof()
        except (ConnectionError, LookupError):  # the reader is gone, or the job is
            pass
        except TimeoutError:  # the reader is there, but reads nothing
            if http.transport is not None:
                http.transport.abort()
        finally:
            job.readers -= 1
            job.read_at = time.monotonic()
            job.wake()
        return response

    async def _write(self, response: web.StreamResponse, line: bytes) -> None:
        async with asyncio.timeout(self.settings.keep_seconds):
            await response.write(line)

    def _delivered(self, job: Job, stream: int, line: int) -> None:
        if job.stream == stream:
            job.sent = line
            job.spool.shrink(self.settings.spool_bytes, line)
            self._scheduler.fill()

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _job(self, http: web.Request) -> Job:
        name = http.match_info["job"]
        job = self._scheduler.jobs.get(name)
        if job is None or job.owner != http["owner"]:
            raise e.NotFound(f"there is no job {name[:60]!r}; it may have expired, or belong to another token")
        return job

    def _forget(self, job: Job) -> None:
        self._scheduler.remove(job)
        for key, (name, _) in list(self._keys.items()):
            if name == job.name:
                del self._keys[key]

    async def _sweep(self) -> None:
        """Cancel jobs that are not read, and forget those that have ended."""
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self.settings.keep_seconds))
            now = time.monotonic()
            for job in list(self._scheduler.jobs.values()):
                if not job.checked.done():  # its caller waits for the check, which has a bound of its own
                    job.read_at = now
                if job.readers or now - job.read_at < self.settings.keep_seconds:
                    continue
                if job.ended.is_set():
                    self._forget(job)
                else:
                    self._scheduler.cancel(job, "expired")
                job.read_at = now


def _parsed(body: bytes) -> tuple[RolloutRequest, dict[str, Any]]:
    check_json(body)
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        raise e.ParseError("the request is not JSON") from None
    if not isinstance(raw, dict):
        raise e.InvalidParams(f"the request must be a JSON object, not {type(raw).__name__}")
    try:
        return RolloutRequest.model_validate(raw), raw
    except ValidationError as error:
        first: Mapping[str, Any] = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the request"
        if first["loc"] and first["loc"][-1] in ("token", "api_key"):
            first = {**first, "input": "(not shown)"}
        raise e.InvalidParams(f"{where}: {describe_invalid(first)}") from None


def _job_line(job: Job) -> bytes:
    return json.dumps({"type": "job", **job.status()}).encode() + b"\n"


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response(value, status=status, headers=headers)


def _error(error: e.LudusError, status: int | None = None) -> web.Response:
    if status is None:
        known = isinstance(error, e.RequestError | e.CapacityError | e.ServerError)
        status = error.http_status if known else 502
    body = {"error": {"type": type(error).__name__, "code": error.code, "message": error.message}}
    headers = {"Retry-After": f"{error.retry_after:.0f}"} if error.retry_after is not None else {}
    with suppress(ValueError):
        return _json(body, status, headers)
    return _json({"error": {"type": type(error).__name__, "code": error.code, "message": ""}}, status)
