"""The pages for operating the server, answered for all workers together."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json

from ludus.protocol.errors import ServerError, ShuttingDown
from ludus.server.workers.counts import gateway_metrics
from ludus.server.workers.upstream import GATEWAY_HEADER, Reply, ask

if TYPE_CHECKING:
    from ludus.server.workers.requests import Request
    from ludus.server.workers.roles import Client, GatewayRole

PAGE_SECONDS: Final = 10.0
"""How long a worker may take for a page."""

_ANSWERED: Final = frozenset({200, 503})
_SAMPLE: Final = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? (.+)")


class PageUnreadable(ServerError):
    """A worker has answered a request for a page with what is no such page."""

    http_status = 502


class Pages:
    """Answers `/health`, `/ready` and `/metrics`."""

    def __init__(self, gateway: GatewayRole) -> None:
        self._gateway = gateway

    async def answer(self, client: Client, request: Request, path: str) -> None:
        """Answer a request for one of the pages.

        Raises:
            PageUnreadable: a worker's page is not one; at a hub, workers are other people's.
        """
        replies = await self._ask_all(client, request)
        refusal = next((reply for reply in replies.values() if reply.status not in _ANSWERED), None)
        if refusal is not None or path == "/health":
            first_reply = refusal or next(iter(replies.values()))
            kind = first_reply.headers.get(b"content-type", b"application/json").decode("latin-1")
            headers = {"www-authenticate": "Bearer"} if first_reply.status == 401 else {}
            client.answer(request, first_reply.status, first_reply.body, headers, kind)
        elif path == "/ready":
            status, body = _merge_readiness(replies, self._gateway.trouble)
            client.answer(request, status, body)
        else:
            text = merge_metrics({name: _text(name, reply) for name, reply in replies.items()})
            text += gateway_metrics(self._gateway.counts, self._gateway.pool.workers.values())
            kind = next(iter(replies.values())).headers.get(b"content-type", b"text/plain").decode("latin-1")
            client.answer(request, 200, text.encode(), {}, kind)

    async def _ask_all(self, client: Client, request: Request) -> dict[str, Reply]:
        """Return the answers of the workers that answer.

        Raises:
            ShuttingDown: none does.
        """
        workers = [worker for worker in self._gateway.pool.workers.values() if worker.up]
        headers = [*request.passed_headers(), (GATEWAY_HEADER, self._gateway.introduction(client.peer))]

        async def one(worker: Any) -> Reply | None:
            try:
                async with asyncio.timeout(PAGE_SECONDS):
                    return await ask(worker, request.method, request.target, headers)
            except OSError:
                return None

        answers = await asyncio.gather(*map(one, workers))
        answered = {worker.name: answer for worker, answer in zip(workers, answers, strict=True) if answer is not None}
        if not answered:
            raise ShuttingDown("no worker is running at this time; try again", retryAfter=1.0)
        return answered


def _text(worker: str, reply: Reply) -> str:
    try:
        return reply.body.decode()
    except UnicodeDecodeError:
        raise PageUnreadable(f"the page of worker {worker} is not UTF-8") from None


def _readiness(worker: str, reply: Reply) -> dict[str, Any]:
    try:
        readiness = from_json(reply.body, allow_inf_nan=False)
    except ValueError:
        readiness = None
    if not isinstance(readiness, dict):
        raise PageUnreadable(f"worker {worker} has answered to /ready with no JSON object")
    return readiness


def _merge_readiness(replies: dict[str, Reply], trouble: str | None) -> tuple[int, bytes]:
    """Return the status and the body of the readiness of all workers.

    A start goes to any worker, so one that cannot write its journal makes all of them unwritable.

    Args:
        replies: the workers' own, by worker.
        trouble: why the gateway cannot note starts; None if it can.
    """
    by_worker = {worker: _readiness(worker, reply) for worker, reply in replies.items()}
    bodies = list(by_worker.values())
    statuses = [body.get("status") for body in bodies]
    reasons = [f"worker {worker}: {body['reason']!s:.300}" for worker, body in by_worker.items() if body.get("reason")]
    if trouble is not None:
        statuses.append("unwritable")
        reasons.append(trouble)
    status = next((candidate for candidate in ("unwritable", "ready", "full") if candidate in statuses), "stopping")
    merged: dict[str, Any] = {"status": status}
    if status == "unwritable" and reasons:
        merged["reason"] = "; ".join(reasons)
    for name in ("running", "limit", "queued"):
        if all(isinstance(body.get(name), int) for body in bodies):
            merged[name] = sum(body[name] for body in bodies)
    return (200 if status == "ready" else 503), json.dumps(merged, separators=(",", ":")).encode()


def merge_metrics(texts: dict[str, str]) -> str:
    """Return the expositions of several workers as one, in which each sample has the label `worker`."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for worker, text in texts.items():
        comments: list[str] = []
        samples: list[str] = []
        for line in text.split("\n"):  # a label may hold other line separators
            if line.startswith("# HELP "):
                comments, samples = families.setdefault(line.split(" ")[2], ([], []))
                if not comments:
                    comments.append(line)
            elif line.startswith("#"):
                if len(comments) < 2:
                    comments.append(line)
            elif (sample := _SAMPLE.fullmatch(line)) is not None:
                name, labels, value = sample.groups()
                labels = f'worker="{worker}"' + (f",{labels}" if labels else "")
                samples.append(f"{name}{{{labels}}} {value}")
    return "".join(f"{line}\n" for comments, samples in families.values() for line in (*comments, *samples))
