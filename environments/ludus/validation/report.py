"""Run the checks on environments and report the verdicts."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Final, get_args

from ludus import checks
from ludus.checks import NotApplicable, Status
from ludus.client import connect
from ludus.client.client import Client
from ludus.client.connecting import WireName
from ludus.client.environment import RemoteEnvironment
from ludus.protocol.errors import AuthoringError, EnvironmentNotFound, Unsupported
from ludus.validation import (  # fmt: skip
    contract,
    drift,
    leakage,
    reformatting,
    repeats,
    replays,
    resources,
    reward_hacking,
    scores,
    shortcuts,
)
from ludus.validation.core import distinct
from ludus.validation.core.causes import Diagnosis, Found
from ludus.validation.core.checks import Check, Finding, Verdict
from ludus.validation.core.last_report import FORMAT, LastReport, RecordedEpisode, record
from ludus.validation.core.local_environments import LocalEnvironments, is_address
from ludus.validation.core.server_process import ServerProcess, serving_measured
from ludus.validation.core.settings import Settings
from ludus.validation.core.surroundings import CHANGEABLE, Read, Surroundings
from ludus.validation.core.target import Coverage, ValidationTarget, create_target
from ludus.validation.core.transcripts import Script
from ludus.validation.reward_hacking import excess, variation

_SUITES: Final = (
    contract.suite, repeats.suite, replays.suite, drift.suite, scores.suite, reformatting.suite, leakage.suite,
    distinct.suite, reward_hacking.suite, variation.suite, excess.suite, shortcuts.suite, scores.late, resources.suite,
)  # fmt: skip

CHECKS: Final[tuple[Check, ...]] = tuple(check for suite in _SUITES for check in suite.checks)
"""All checks, in the order in which they run."""

STARTUP: Final = "startup"
"""The kind of the finding for an environment that cannot be served."""

_EXTRA_MISSING: Final = 6
"""The exit code of `ludus serve` in an installation without the server's packages."""

Only = Collection[str] | Mapping[str, Collection[str]]

OnVerdict = Callable[[str, Verdict], None]

OnCheck = Callable[[str, str, int, int], None]
"""Called before each check with the environment, the kind of the check, its number from 1, and the number of checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(checks.Report[Verdict]):
    """The outcome of all checks on one environment."""

    STATUSES: ClassVar[tuple[Status, ...]] = ("passed", "failed", "warned", "waived", "skipped", "broken")
    FAILING: ClassVar[tuple[Status, ...]] = ("failed", "broken")
    FAILING_IF_STRICT: ClassVar[tuple[Status, ...]] = ("warned",)

    target: str
    environment: str
    version: str = ""
    tasks: dict[str, int]
    """The number of tasks of each split that were played."""
    measured: dict[str, float]
    """The measurements by name: the seconds of starts and steps (median and 95th percentile, with several episodes at
    the same time), the kilobytes that an episode leaves in the server's memory, and the kilobytes of that server."""
    coverage: Coverage = Coverage()
    """The episodes that the checks played."""
    seconds: float
    recorded: tuple[RecordedEpisode, ...] = ()
    """Some episodes, with which `since` of a later run compares."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings that are not waived, errors first."""
        findings = [finding for verdict in self.verdicts if verdict.status != "waived" for finding in verdict.findings]
        return tuple(sorted(findings, key=lambda finding: finding.severity))

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "format": FORMAT,
            "target": self.target,
            "environment": self.environment,
            "version": self.version,
            "tasks": self.tasks,
            "measured": self.measured,
            "coverage": asdict(self.coverage),
            "strict": self.strict,
            "passed": self.passed,
            "seconds": round(self.seconds, 3),
            "counts": self.counts(),
            "checks": self.verdicts_as_json(),
            "recorded": [script.model_dump(mode="json") for script in self.recorded],
        }


async def validate(
    target: str,
    *more: str,
    environments: Collection[str] | None = None,
    sources: Sequence[str] = (),
    settings: Settings | None = None,
    only: Only | None = None,
    token: str | None = None,
    wire: str = "auto",
    strict: bool = False,
    waivers: Mapping[str, str] | None = None,
    since: Sequence[LastReport] = (),
    on_verdict: OnVerdict | None = None,
    on_check: OnCheck | None = None,
) -> list[Report]:
    """Check environments through a server, and with their code if it is available.

    Args:
        target: a server's address; or a name, module:Class or file.py:Class, which is then served in new processes on
            this machine.
        more: further names or classes.
        environments: the names of the environments to check; None for all environments of the targets.
        sources: for an address, the environments' classes, for oracles and private fields. Installed environments are
            found by their names.
        settings: the effort and the thresholds.
        only: the kinds of checks to carry out: for all environments, or a mapping from an environment's name to its
            kinds, in which an environment that is left out gets all checks; None for all checks.
        token: a trainer token, for servers that require one.
        wire: the wire to the server: channel, mcp or ors.
        strict: whether warnings count as failures.
        waivers: the kinds of checks whose findings are accepted, each with a reason; in addition to the class's
            `waived_checks`.
        since: earlier reports, from `read_reports`: what they recorded must still happen, unless the environment's
            version is another one.
        on_verdict: called with the environment and each verdict as soon as it is known.
        on_check: called before each check.

    Returns:
        A report for each environment.

    Raises:
        ConnectionFailed: the address does not answer.
        EnvironmentNotFound: the targets have no such environment.
        ValueError: a waiver names a check that does not exist or gives no reason; an address is combined with other
            targets or lacks `http://`; the wire does not exist; or `settings.random_baseline` is outside of an
            environment's reward range.
    """
    targets = (target, *more)
    if wire not in get_args(WireName):
        raise ValueError(f"there is no transport {wire!r}; choose from: {', '.join(get_args(WireName))}")
    addresses = [is_address(address) for address in targets]
    if more and any(addresses):
        raise ValueError("validate one address, or one or more environments by name, module:Class or file.py:Class")
    local_environments = LocalEnvironments(*(sources if addresses[0] else targets))
    waivers = dict(waivers or {})
    _check_waivers(waivers)
    run = _Run(
        ", ".join(targets), local_environments, settings or Settings(), only, strict, waivers,
        {report.environment: report for report in since}, on_verdict, on_check,
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        if addresses[0]:
            client = await stack.enter_async_context(connect(target, token=token, wire=wire))  # type: ignore[arg-type]
            return [
                await run.check(client, name)
                for name in await _names(client, environments, run.settings.random_baseline)
            ]
        try:
            process = await stack.enter_async_context(serving_measured(targets, Surroundings()))
        except AuthoringError as refusal:
            if refusal.data.get("exit_code") == _EXTRA_MISSING:
                raise
            return [run.refused(refusal)]
        second = SecondServer(targets, run.settings.secrets, stack)
        client = await stack.enter_async_context(connect(process.url))
        names = await _names(client, environments, run.settings.random_baseline)
        return [await run.check(client, name, process=process, second=second) for name in names]


async def _names(client: Client, requested: Collection[str] | None, baseline: float | None) -> list[str]:
    infos = {info.name: info for info in await client.environments()}
    names = list(infos if requested is None else requested)
    for name in names:
        if name not in infos:
            raise EnvironmentNotFound(
                f"there is no environment {name!r}; the targets have: {', '.join(infos) or 'none'}"
            )
        reward_range = infos[name].reward_range
        if baseline is not None and reward_range is not None and not reward_range[0] <= baseline < reward_range[1]:
            low, high = reward_range
            raise ValueError(
                f"the random baseline cannot be {baseline:g}: rewards of {name} are {low:g} to {high:g}; give "
                "less than the highest"
            )
    return names


class SecondServer:
    """Another process that serves the same sources in other surroundings, which is started at first use.

    Args:
        sources: what it serves.
        secrets: are given to each episode when causes are searched.
        stack: ends it.
    """

    def __init__(self, sources: Sequence[str], secrets: Mapping[str, str], stack: AsyncExitStack) -> None:
        self.sources = sources
        self.secrets = secrets
        self._stack = stack
        self._client: Client | None = None
        self.process: ServerProcess | None = None

    async def environment(self, name: str) -> RemoteEnvironment:
        """Return the environment with a name on the second server, which is started at first use."""
        if self._client is None:
            surroundings = Surroundings(frozenset(CHANGEABLE))
            self.process = await self._stack.enter_async_context(serving_measured(self.sources, surroundings))
            self._client = await self._stack.enter_async_context(connect(self.process.url))
        return self._client.environment(name)


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """One environment on the second server."""

    server: SecondServer
    name: str

    async def environment(self) -> RemoteEnvironment:
        """Return the environment there."""
        return await self.server.environment(self.name)

    async def causes(self, scripts: Sequence[Script], before: Sequence[Script]) -> Mapping[Script, Sequence[Found]]:
        """Return what the results of scripts depend on."""
        return await Diagnosis(self.server.sources, self.name, self.server.secrets).causes(scripts, before)

    @property
    def reads(self) -> Sequence[Read]:
        """The places in the environments' code that have read their surroundings there."""
        return self.server.process.reads if self.server.process is not None else ()


@dataclass(frozen=True, slots=True)
class _Run:
    target: str
    local_environments: LocalEnvironments
    settings: Settings
    only: Only | None
    strict: bool
    waivers: Mapping[str, str]
    since: Mapping[str, LastReport]
    on_verdict: OnVerdict | None
    on_check: OnCheck | None

    def refused(self, refusal: AuthoringError) -> Report:
        """Return the report for an environment that cannot be served."""
        finding = Finding(STARTUP, "error", refusal.message)
        verdict = Verdict(
            kind=STARTUP, title="The environment can be served", status="failed", findings=(finding,), seconds=0.0
        )
        if self.on_verdict is not None:
            self.on_verdict(self.target, verdict)
        return Report(
            target=self.target, environment=self.target, tasks={}, measured={}, strict=self.strict, seconds=0.0,
            verdicts=(verdict,),
        )  # fmt: skip

    async def check(
        self,
        client: Client,
        name: str,
        *,
        process: ServerProcess | None = None,
        second: SecondServer | None = None,
    ) -> Report:
        """Carry out the checks on one environment and return the report."""
        began = time.perf_counter()
        environment = client.environment(name)
        info = await environment.info()

        verdicts: list[Verdict] = []
        target = await create_target(
            environment, info, self.settings, local_environments=self.local_environments, process=process,
            second=_Elsewhere(second, name) if second is not None else None,
            last_report=self.since.get(name),
        )  # fmt: skip
        declared = getattr(target.local.cls, "waived_checks", {}) if target.local is not None else {}
        _check_waivers(declared)
        waivers = {**declared, **self.waivers}
        allowed = self.only.get(name) if isinstance(self.only, Mapping) else self.only
        chosen = [check for check in CHECKS if allowed is None or check.kind in allowed]
        for number, check in enumerate(chosen, 1):
            if self.on_check is not None:
                self.on_check(name, check.kind, number, len(chosen))
            verdict = await _judge(check, target)
            if verdict.status == "failed":
                target.failed.add(check.kind)
            elif verdict.status == "warned":
                target.warned.add(check.kind)
            verdicts.append(_waived(verdict, waivers.get(check.kind)))
            if self.on_verdict is not None:
                self.on_verdict(name, verdicts[-1])
        tasks = {split.info.name: len(split.tasks) for split in target.splits}
        return Report(
            target=self.target, environment=name, version=info.version, tasks=tasks, measured=target.measured,
            strict=self.strict, coverage=target.coverage, seconds=time.perf_counter() - began, verdicts=tuple(verdicts),
            recorded=record(target.steady),
        )  # fmt: skip


def _check_waivers(waivers: Mapping[str, str]) -> None:
    check_kinds = {check.kind for check in CHECKS}
    for kind, reason in waivers.items():
        if kind not in check_kinds:
            near = difflib.get_close_matches(kind, check_kinds, 1)
            hint = f"; did you mean {near[0]!r}?" if near else "; `ludus validate --list` shows all"
            raise ValueError(f"cannot waive {kind!r}: there is no such check{hint}")
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"cannot waive {kind!r} without a reason; say why its findings are acceptable")


def _waived(verdict: Verdict, reason: str | None) -> Verdict:
    """Return a verdict as the report shows it: waived if there is a reason to accept its findings."""
    if reason is None or verdict.status in ("passed", "skipped"):
        return verdict
    detail = f"waived: {reason}" + (f" ({verdict.detail})" if verdict.detail else "")
    return replace(verdict, status="waived", detail=detail)


async def _judge(check: Check, target: ValidationTarget) -> Verdict:
    began = time.perf_counter()
    findings: list[Finding] = []
    status: Status = "passed"
    detail = ""
    target.used, target.remark = Coverage(), ""
    try:
        async for problem in check.run(target):
            findings.append(
                Finding(
                    check.kind, problem.severity, problem.message, problem.evidence, problem.count, problem.cause
                )
            )  # fmt: skip
    except NotApplicable as reason:
        status, detail = "skipped", str(reason)
    except Unsupported as refusal:
        status, detail = "skipped", refusal.message
    except Exception as failure:  # the author's code may raise anything; the other checks continue
        status, detail = "broken", f"the check could not be carried out: {type(failure).__name__}: {failure}"
    if status == "passed" and (nothing := target.used.nothing(check.scored)):
        status, detail = "skipped", nothing
    elif status == "passed":
        detail = target.remark
    if findings:
        status = "failed" if any(finding.severity == "error" for finding in findings) else "warned"
    seconds = round(time.perf_counter() - began, 3)
    return Verdict(
        kind=check.kind, title=check.title, status=status, findings=tuple(findings), detail=detail, seconds=seconds
    )
