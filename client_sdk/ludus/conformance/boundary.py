"""Checks of the HTTP boundary: requests from other origins, other host names, and oversized bodies."""

from __future__ import annotations

from urllib.parse import urlsplit

from ludus.conformance.checks import NotApplicable, Suite, expect
from ludus.conformance.context import CheckContext
from ludus.conformance.http_probe import FOREIGN_ORIGIN, Answer, bearer
from ludus.conformance.play import start_session

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def boundary(path: str | None) -> Suite:
    """Return the boundary checks of the wire at a path that takes POST; None is a new episode's agent endpoint."""
    suite = Suite()

    async def place(context: CheckContext) -> str:
        if path is not None:
            return path
        started, _ = await start_session(context)
        return str(started["play"]["path"])

    async def ask(context: CheckContext, **headers: str) -> Answer:
        all_headers = {**bearer(context.token), "Accept": "application/json, text/event-stream", **headers}
        return await context.probe.ask(context.wire, "POST", await place(context), headers=all_headers, body={})

    @suite.check("requests from a foreign origin are refused", "SEC-3", negative=True, profile=True)
    async def origin(context: CheckContext) -> None:
        status = (await ask(context, Origin=FOREIGN_ORIGIN)).status
        expect(status in (403, 421), f"a request from {FOREIGN_ORIGIN} got the status {status}, expected 403")

    @suite.check("requests for another host are refused on loopback", "SEC-3", negative=True, profile=True)
    async def other_host(context: CheckContext) -> None:
        if urlsplit(context.target.url).hostname not in _LOOPBACK or context.token is not None:
            raise NotApplicable("the server may serve more than loopback")
        status = (await ask(context, Host="elsewhere.ludus-conform.example")).status
        expect(status in (403, 421), f"a request for another host got the status {status}, expected 403 or 421")

    @suite.check("pages of other origins must not read replies", "SEC-3", negative=True)
    async def cors(context: CheckContext) -> None:
        headers = {"Origin": FOREIGN_ORIGIN, "Access-Control-Request-Method": "POST"}
        for answer in (
            await ask(context, Origin=FOREIGN_ORIGIN),
            await context.probe.ask(context.wire, "OPTIONS", await place(context), headers=headers),
        ):
            names = {name.lower(): value for name, value in answer.headers.items()}
            allowed = names.get("access-control-allow-origin")
            expect(
                allowed not in ("*", FOREIGN_ORIGIN), f"Access-Control-Allow-Origin is {allowed} for a foreign origin"
            )

    @suite.check("an endless body is refused with 413", "LIM-12", negative=True, profile=True)
    async def large_body(context: CheckContext) -> None:
        status = await context.probe.oversized(await place(context), context.token)
        if status is None:
            raise NotApplicable("the server accepted 64 MiB of a body without a reply")
        expect(status == 413, f"a body of a terabyte got the status {status}, expected 413")

    return suite
