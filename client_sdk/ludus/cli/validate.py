"""`ludus validate`: check whether the rewards of environments work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from ludus.cli._verdicts import MARKS, Out, Strict, check_out, finish, print_verdict
from ludus.cli.common import Json, Token, WireOption, console, parse_pairs, print_json, run, shown
from ludus.validation.core.checks import Verdict
from ludus.validation.core.last_report import read_reports
from ludus.validation.core.settings import DEFAULT_TASKS, DEFAULT_TURNS, Settings
from ludus.validation.report import CHECKS, Report, validate

COMMANDS: Final = {"validate": "Find out whether an environment's reward works."}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("validate", help=COMMANDS["validate"])(validate_command)


def validate_command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENV|URL...", help="NAME, module:Class or file.py:Class; or a server's address."),
    ] = None,
    environment: Annotated[
        list[str] | None, typer.Option("--environment", help="Only this one, by name; may be repeated.")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="For an address: the environment's class, for its oracle and private fields."),
    ] = None,
    tasks: Annotated[int, typer.Option("--tasks", "-n", min=1, help="Tasks of each split to play.")] = DEFAULT_TASKS,
    all_tasks: Annotated[bool, typer.Option("--all", help="Play all tasks.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of episodes and random policies.")] = 0,
    margin: Annotated[
        float,
        typer.Option(
            "--margin",
            min=0.0,
            max=1.0,
            help="How far above the random baseline a policy that solves nothing may score; 1 is the best reward.",
        ),
    ] = 0.25,
    random_baseline: Annotated[
        float | None,
        typer.Option(
            "--random-baseline", help="The average reward of guessing; overrides the class's `random_baseline`."
        ),
    ] = None,
    check: Annotated[
        list[str] | None, typer.Option("--check", metavar="KIND", help="Only this check; may be repeated.")
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="KIND=REASON", help="Accept what this check finds, and why; may be repeated."),
    ] = None,
    turns: Annotated[
        int, typer.Option("--turns", min=1, help="Turns of a policy in an episode; oracles may take 10 000.")
    ] = DEFAULT_TURNS,
    scan: Annotated[int, typer.Option("--scan", min=1, help="Tasks of each split to compare with others.")] = 10_000,
    step_seconds: Annotated[float, typer.Option("--step-seconds", help="What tool calls should stay below.")] = 5.0,
    secret: Annotated[
        list[str] | None, typer.Option("--secret", metavar="NAME=VALUE", help="Given to each episode; may be repeated.")
    ] = None,
    since: Annotated[
        Path | None,
        typer.Option(
            "--since", help="The last report (of --out), whose episodes must give the same unless the version differs."
        ),
    ] = None,
    strict: Strict = False,
    out: Out = None,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks, and do nothing else.")] = False,
    token: Token = None,
    wire: WireOption = "auto",
    as_json: Json = False,
) -> None:
    """Play environments, look for faults that harm learning, and report what was found.

    [bold]ludus validate guess_number[/bold]
    [bold]ludus validate my_env.py:Arithmetic --all --strict[/bold]
    [bold]ludus validate https://example.org --environment countdown[/bold]

    Exits with 0 when everything passed, 1 when a check failed.
    """
    if list_checks:
        _list(as_json)
        return
    if not targets:
        raise typer.BadParameter("name an environment, or a server's address", param_hint="ENV|URL")
    kinds = {known.kind for known in CHECKS}
    for kind in check or ():
        if kind not in kinds:
            raise typer.BadParameter(f"--check {kind}: choose from {', '.join(sorted(kinds))}")
    check_out(out)
    progress = _Progress(quiet=as_json)
    try:
        settings = Settings(
            tasks=None if all_tasks else tasks, seed=seed, margin=margin, random_baseline=random_baseline, turns=turns,
            scan=scan,
            step_seconds=step_seconds, secrets=parse_pairs("--secret", secret or ()),
        )  # fmt: skip
        reports = run(
            validate(
                *targets, environments=environment, sources=source or (), settings=settings, only=check, token=token,
                wire=wire, strict=strict, waivers=_waivers(skip or []),
                since=read_reports(since) if since is not None else (), on_verdict=progress,
                on_check=progress.begin,
            )
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    finally:
        progress.close()
    if not as_json:
        _summarize(reports)
    finish(reports, [report.as_json() for report in reports], out=out, as_json=as_json)


def _waivers(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        kind, equals, reason = pair.partition("=")
        if not equals or not reason.strip():
            raise typer.BadParameter(f"--skip {kind}: say why, as in --skip '{kind}=it is a demo'")
        found[kind] = reason.strip()
    return found


class _Progress:
    """Prints each verdict under the name of its environment, and on a terminal also the running check."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._environment: str | None = None
        self._status = console.status("starting the server") if console.is_terminal and not quiet else None
        if self._status is not None:
            self._status.start()

    def begin(self, environment: str, kind: str, number: int, count: int) -> None:
        """Show which check runs."""
        if self._status is not None:
            self._status.update(shown(f"{environment}: check {number} of {count}, {kind}", "dim"))

    def close(self) -> None:
        """Remove the progress line."""
        if self._status is not None:
            self._status.stop()

    def __call__(self, environment: str, verdict: Verdict) -> None:
        if self._quiet:
            return
        if environment != self._environment:
            self._environment = environment
            console.print(shown(environment, "bold"))
        print_verdict(verdict, f"{verdict.kind:26}", details=[verdict.detail] if verdict.detail else [], indent=2)
        for finding in verdict.findings:
            console.print(shown(f"      {finding.message}", MARKS[verdict.status][1]), soft_wrap=True)
            for one in finding.evidence:
                where = f"{one.where}: " if one.where else ""
                console.print(shown(f"        {where}{one.detail}", "dim"), soft_wrap=True)
            if finding.count > len(finding.evidence):
                console.print(shown(f"        and {finding.count - len(finding.evidence)} more", "dim"))


def _summarize(reports: list[Report]) -> None:
    table = Table(
        "environment", "verdict", "✓", "✗", "!", "~", "–", "tasks", "start ms", "step ms", "KB", padding=(0, 0)
    )
    for report in reports:
        counts = report.counts()
        kilobytes = report.measured.get("episode_kilobytes")
        table.add_row(
            shown(report.environment), shown("passes", "green") if report.passed else shown("fails", "red"),
            str(counts["passed"]), str(counts["failed"] + counts["broken"]), str(counts["warned"]),
            str(counts["waived"]), str(counts["skipped"]), str(sum(report.tasks.values())),
            _milliseconds(report, "start_seconds_p95"), _milliseconds(report, "step_seconds_p95"),
            "–" if kilobytes is None else f"{kilobytes:.0f}",
        )  # fmt: skip
    console.print(table)
    for report in reports:
        judged = sum(verdict.status != "skipped" for verdict in report.verdicts)
        console.print(
            shown(
                f"{report.environment}: {report.coverage.episodes} episodes were played, {report.coverage.started} "
                f"started, {report.coverage.scored} were scored; {judged} of {len(report.verdicts)} checks judged them"
            ),
            soft_wrap=True,
        )
    kinds = sorted({finding.kind for report in reports for finding in report.findings})
    if kinds:
        console.print(shown(f"Found: {', '.join(kinds)}"), soft_wrap=True)


def _milliseconds(report: Report, name: str) -> str:
    seconds = report.measured.get(name)
    return "–" if seconds is None else f"{1000 * seconds:.1f}"


def _list(as_json: bool) -> None:
    if as_json:
        print_json([{"kind": one.kind, "title": one.title, "peers": list(one.peers)} for one in CHECKS])
        return
    table = Table("kind", "what holds for an environment that passes")
    for one in CHECKS:
        table.add_row(shown(one.kind), shown(one.title))
    console.print(table)
