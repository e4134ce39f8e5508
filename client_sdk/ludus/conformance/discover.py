"""Discover which modules and wires a server has, and choose the environment and the split to check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import aiohttp

from ludus.conformance.checks import WIRE_MODULES, ConformanceFailure
from ludus.conformance.context import CheckContext, Target
from ludus.conformance.http_probe import HttpProbe, bearer
from ludus.conformance.ors_probes import request
from ludus.conformance.probes import StockMcpClient
from ludus.protocol.errors import ConnectionFailed, EnvironmentNotFound, SplitNotFound, Unauthenticated
from ludus.protocol.identifiers import CONTROL_PATH, EXTENSION_ID, EXTENSION_VERSION, ORS_EXTENSION_HEADER
from ludus.protocol.modules import Module

WIRES: Final = ("channel", "mcp", "play", "ors")
"""The wires that can be checked, in the order of checking."""

CONTROL_WIRES: Final = ("channel", "mcp")
_NO_ANSWER: Final = (aiohttp.ClientError, OSError, TimeoutError, ConformanceFailure, KeyError, TypeError)


async def discover(probe: HttpProbe, target: Target, environment: str | None, split: str | None) -> Target:
    """Return the target with its modules, environment, split and control wires, as its server lists them.

    Args:
        probe: sends the requests to the server.
        target: the target, of which only the URL and the tokens are set.
        environment: the environment to play; None for the first.
        split: the split to take tasks from; None for the first one that is not a test split.

    Raises:
        ConnectionFailed: the server answers on no wire.
        Unauthenticated: the server requires a token, or does not accept the given one.
        EnvironmentNotFound: the server has no such environment.
        SplitNotFound: the environment has no such split.
    """
    controls, listed, reasons = [], [], []
    announced = await _modules(probe, target)
    for name in CONTROL_WIRES:
        if announced is not None and name == "channel" and Module.CHANNEL not in announced:
            continue
        try:
            listed = (await CheckContext(name, target, probe, name).must("environments/list"))["environments"]
            controls.append(name)
        except _NO_ANSWER as error:
            if getattr(error, "status", None) == 401 or "4010" in str(error):
                raise _unauthenticated(probe.url, target.token) from None
            reasons.append(f"{name}: {str(error) or type(error).__name__}")
    plain = False
    if not controls:
        try:
            listed, plain = await _by_ors(probe, target)
        except _NO_ANSWER as error:
            reasons.append(f"ors: {str(error) or type(error).__name__}")
            raise ConnectionFailed(
                f"{probe.url} answers on no transport ({'; '.join(reasons)})", url=probe.url
            ) from None
    info = _pick(listed, environment, lambda names: EnvironmentNotFound(
        f"{probe.url} has no environment {environment!r}; it has {names}"))  # fmt: skip
    trained = [row for row in info["splits"] if row["type"] != "test"] if split is None else info["splits"]
    chosen = _pick(trained or info["splits"], split, lambda names: SplitNotFound(
        f"environment {info['name']!r} has no split {split!r}; it has {names}"))  # fmt: skip
    modules = (announced or frozenset()) if controls else None
    return replace(
        target, environment=info, split=chosen["name"], controls=tuple(controls), modules=modules, plain_ors=plain
    )


async def _modules(probe: HttpProbe, target: Target) -> frozenset[Module] | None:
    """Return the modules that the settings in `server/discover` name; None if there are no readable settings."""
    client = StockMcpClient(probe, CONTROL_PATH, "mcp", headers=bearer(target.token))
    try:
        result = (await client.ask("server/discover")).result or {}
        names = result["capabilities"]["extensions"][EXTENSION_ID]["modules"]
    except (*_NO_ANSWER, AttributeError):
        return None
    return frozenset(module for module in Module if module in names) if isinstance(names, dict) else None


def _pick(listed: list[dict[str, Any]], name: str | None, missing: Callable[[str], Exception]) -> dict[str, Any]:
    for entry in listed:
        if name in (None, entry["name"]):
            return entry
    raise missing(", ".join(str(entry["name"]) for entry in listed) or "none")


def _unauthenticated(url: str, token: str | None) -> Unauthenticated:
    return Unauthenticated(f"{url} {'does not accept this token' if token else 'requires a token'}")


async def _by_ors(probe: HttpProbe, target: Target) -> tuple[list[dict[str, Any]], bool]:
    """Return the environments that ORS lists, and whether the server is plain ORS."""
    headers = bearer(target.token)
    status, names = await request(probe, "GET", "/list_environments", None, headers)
    if status == 401:
        raise _unauthenticated(probe.url, target.token)
    if status != 200 or not isinstance(names, list):
        raise ConformanceFailure(f"GET /list_environments was answered with {status}")
    listed = []
    for name in names:
        _, splits = await request(probe, "GET", f"/{name}/splits", None, headers)
        _, tools = await request(probe, "GET", f"/{name}/tools", None, headers)
        listed.append({"name": name, "splits": splits, "gradable": bool(tools.get("terminal_tool"))})
    _, version = await request(probe, "GET", "/version", None, {**headers, ORS_EXTENSION_HEADER: EXTENSION_VERSION})
    return listed, not (isinstance(version, dict) and "ludus" in version)


def wires_of(target: Target) -> tuple[str, ...]:
    """Return the core's wire and those that the server announces; for a plain ORS server, only ORS."""
    if target.modules is None:
        return ("ors",)
    return tuple(wire for wire in WIRES if wire not in WIRE_MODULES or WIRE_MODULES[wire] in target.modules)
