"""Run the conformance checks against a server and report the verdicts."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import aiohttp

from ludus import checks
from ludus.checks import NotApplicable, Status
from ludus.conformance import (
    catalog,
    channel,
    episodes,
    exactly_once,
    limits,
    modules,
    negotiation,
    ors,
    play,
    rewards,
    rights,
    seats,
    worlds,
)
from ludus.conformance.boundary import boundary
from ludus.conformance.checks import CORE, WIRE_MODULES, Check, ConformanceFailure, Verdict
from ludus.conformance.context import CheckContext, Target
from ludus.conformance.discover import discover, wires_of
from ludus.conformance.http_probe import HttpProbe, Transcript
from ludus.protocol.errors import LudusError
from ludus.protocol.identifiers import CONTROL_PATH, EXTENSION_ID, EXTENSION_VERSION
from ludus.protocol.modules import Module

_PAUSES: Final = 15.0
"""Seconds that a check may spend waiting on purpose."""

OnVerdict = Callable[[Verdict], None]


_CONTROL = (
    catalog.suite, episodes.suite, exactly_once.suite, limits.suite, rewards.suite, rights.suite, modules.suite,
    seats.suite, worlds.suite,
)  # fmt: skip
_SUITES: Final = {
    "channel": (*_CONTROL, channel.suite),
    "mcp": (*_CONTROL, negotiation.suite, boundary(CONTROL_PATH)),
    "play": (play.suite, boundary(None)),
    "ors": (ors.suite, boundary("/create_session")),
}

CHECKS: Final[Mapping[str, tuple[Check, ...]]] = {
    wire: tuple(sorted((check for suite in suites for check in suite.checks), key=lambda check: check.last))
    for wire, suites in _SUITES.items()
}
"""The checks of each wire, in the order in which they run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(checks.Report[Verdict]):
    """The outcome of all checks on one server."""

    STATUSES: ClassVar[tuple[Status, ...]] = ("passed", "failed", "noted", "skipped")
    FAILING: ClassVar[tuple[Status, ...]] = ("failed",)
    FAILING_IF_STRICT: ClassVar[tuple[Status, ...]] = ("noted",)

    url: str
    environment: str
    split: str
    wires: tuple[str, ...]
    plain_ors: bool
    """True if the server speaks only ORS and does not claim this standard."""
    announced: frozenset[Module]
    """The modules that the server announces."""

    def by_module(self) -> dict[str, dict[str, Any]]:
        """Return for the core and each module whether the server has it, and the number of verdicts by status."""
        modules: dict[str, dict[str, Any]] = {}
        for name in (CORE, *(module.value for module in Module)):
            statuses = Counter(verdict.status for verdict in self.verdicts if verdict.module == name)
            has = not self.plain_ors if name == CORE else name in self.announced
            modules[name] = {"announced": has}
            modules[name].update((status, statuses[status]) for status in self.STATUSES)
        return modules

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "standard": EXTENSION_ID,
            "version": EXTENSION_VERSION,
            "url": self.url,
            "profile": "ors" if self.plain_ors else "ludus",
            "environment": self.environment,
            "split": self.split,
            "wires": list(self.wires),
            "strict": self.strict,
            "conforms": self.passed,
            "counts": self.counts(),
            "modules": self.by_module(),
            "checks": self.verdicts_as_json(),
        }


async def conform(
    url: str,
    *,
    token: str | None = None,
    other_token: str | None = None,
    limited_token: str | None = None,
    wires: Sequence[str] | None = None,
    checks: Collection[str] | None = None,
    environment: str | None = None,
    split: str | None = None,
    private: Sequence[str] = (),
    seconds: float = 30.0,
    parallel: int = 4,
    strict: bool = False,
    on_verdict: OnVerdict | None = None,
) -> Report:
    """Check a running server from outside and return a report.

    Args:
        url: the server's address.
        token: a trainer token, for servers that require one.
        other_token: a token of another principal, to check that episodes of different principals are kept apart.
        limited_token: a token with only the scopes `tasks:read` and `episodes:run`, to check that scopes are enforced.
        wires: which of `WIRES` to check; by default, `mcp` and those whose modules the server announces.
        checks: the checks to run, by name or by wire and name (`close`, `channel/close`); all of them by default. A
            report of some checks says nothing about the others.
        environment: the environment to play; the first one by default.
        split: the split to take tasks from; by default, the first one that is not a test split.
        private: texts that no message may contain, such as answers of tasks.
        seconds: the longest time that one answer may take.
        parallel: how many checks run at the same time.
        strict: whether notes count as failures.
        on_verdict: called with each verdict as soon as it is known, in the order of the checks.

    Raises:
        ValueError: there is no check of a given name.
        ConnectionFailed: the server answers on no wire.
        Unauthenticated: the server requires a token, or does not accept the given one.
        EnvironmentNotFound: the server has no such environment.
        SplitNotFound: the environment has no such split.
    """
    if checks is not None:
        _require_known(checks)
    target = Target(url.rstrip("/"), token, other_token, limited_token, {}, "", ())
    async with _open_probe(target.url, seconds, private) as probe:
        target = await discover(probe, target, environment, split)
        chosen = tuple(wires) if wires is not None else wires_of(target)
        verdicts: list[Verdict] = []
        for wire in chosen:
            for is_last in (False, True):
                group = [check for check in CHECKS[wire] if check.last is is_last and _is_wanted(checks, wire, check)]
                verdicts += await _judge_all(wire, group, target, probe, parallel, on_verdict)
    name = str(target.environment["name"])
    return Report(
        url=target.url, environment=name, split=target.split, wires=chosen, plain_ors=target.plain_ors, strict=strict,
        verdicts=tuple(verdicts), announced=target.modules or frozenset(),
    )  # fmt: skip


def _require_known(names: Collection[str]) -> None:
    pairs = [(wire, check.name) for wire, checks in CHECKS.items() for check in checks]
    names_of_checks = {name for _, name in pairs} | {f"{wire}/{name}" for wire, name in pairs}
    if unknown := sorted(set(names) - names_of_checks):
        raise ValueError(f"there is no conformance check named {', '.join(map(repr, unknown))}")


def _is_wanted(names: Collection[str] | None, wire: str, check: Check) -> bool:
    return names is None or check.name in names or f"{wire}/{check.name}" in names


@asynccontextmanager
async def _open_probe(url: str, seconds: float, private: Sequence[str]) -> AsyncIterator[HttpProbe]:
    timeout = aiohttp.ClientTimeout(total=seconds)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        yield HttpProbe(http, url, seconds, Transcript(private))


async def _judge_all(
    wire: str, checks: Sequence[Check], target: Target, probe: HttpProbe, parallel: int, on_verdict: OnVerdict | None
) -> list[Verdict]:
    turns = asyncio.Semaphore(max(1, parallel))
    verdicts = []

    async def in_turn(check: Check) -> Verdict:
        async with turns:
            return await _judge(wire, check, target, probe)

    async with asyncio.TaskGroup() as group:
        for task in [group.create_task(in_turn(check)) for check in checks]:
            verdict = await task
            verdicts.append(verdict)
            if on_verdict is not None:
                on_verdict(verdict)
    return verdicts


async def _judge(wire: str, check: Check, target: Target, probe: HttpProbe) -> Verdict:
    began = time.perf_counter()
    status: Status = "passed"
    detail = ""
    control = wire if wire in ("channel", "mcp") else (target.controls or ("channel",))[0]
    try:
        _require_announced(wire, check, target)
        async with CheckContext(wire, target, probe, control) as context, asyncio.timeout(_PAUSES + 3 * probe.seconds):
            await check.run(context)
    except NotApplicable as reason:
        status, detail = "skipped", str(reason)
    except (ConformanceFailure, TimeoutError, aiohttp.ClientError, OSError, LudusError) as error:
        status, detail = "failed", _failure_message(error, probe.seconds)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        status, detail = "failed", f"a reply lacks what the standard requires: {type(error).__name__} {error}"
    if status == "failed" and (check.advice or (check.profile and target.plain_ors)):
        status = "noted"
    seconds = round(time.perf_counter() - began, 4)
    return Verdict(
        wire=wire, check=check.name, title=check.title, requirements=check.requirements, negative=check.negative,
        module=str(check.module or WIRE_MODULES.get(wire) or CORE), status=status, detail=detail, seconds=seconds,
    )  # fmt: skip


def _require_announced(wire: str, check: Check, target: Target) -> None:
    """Raise `NotApplicable` unless the server announces the module of the wire and that of the check."""
    for module in (WIRE_MODULES.get(wire), check.module):
        if module is not None and target.modules is not None and module not in target.modules:
            raise NotApplicable(f"the server does not announce the module {module}")


def _failure_message(error: Exception, seconds: float) -> str:
    match error:
        case ConformanceFailure():
            return str(error)
        case TimeoutError():
            return f"no reply arrived within {seconds:g} s"
        case aiohttp.WSServerHandshakeError():
            return f"the channel's upgrade was refused with HTTP {error.status}"
        case _:
            return f"the connection broke: {error or type(error).__name__}"
