"""`ludus conform`: check whether a running server conforms to the standard."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.table import Table

from ludus.cli._verdicts import Out, Strict, check_out, finish, print_verdict
from ludus.cli.common import Json, Token, Url, console, run, shown
from ludus.conformance.checks import Verdict
from ludus.conformance.discover import WIRES
from ludus.conformance.report import Report, conform

COMMANDS: Final = {"conform": "Check whether a server conforms to the standard."}

WireOption = Annotated[
    list[str] | None,
    typer.Option("--wire", help="Check only this: channel, mcp, play or ors. May be repeated.", metavar="WIRE"),
]
OtherToken = Annotated[
    str | None,
    typer.Option(
        "--other-token",
        envvar="LUDUS_OTHER_TOKEN",
        metavar="TOKEN",
        help="Token of another principal, whose episodes must be hidden.",
    ),
]
LimitedToken = Annotated[
    str | None,
    typer.Option(
        "--limited-token",
        envvar="LUDUS_LIMITED_TOKEN",
        metavar="TOKEN",
        help="Token with only the scopes tasks:read and episodes:run, to check that scopes are enforced.",
    ),
]
Private = Annotated[
    list[str] | None,
    typer.Option(
        "--private", metavar="TEXT", help="A text that no message may contain, such as an answer. May be repeated."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("conform", help=COMMANDS["conform"])(conform_command)


def conform_command(
    url: Url,
    wire: WireOption = None,
    environment: Annotated[
        str | None, typer.Option("--environment", help="The environment to play; by default, the first one.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split", help="The split to take tasks from; by default, the first one that is not a test split."
        ),
    ] = None,
    token: Token = None,
    other_token: OtherToken = None,
    limited_token: LimitedToken = None,
    private: Private = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that one answer may take.")] = 30.0,
    parallel: Annotated[int, typer.Option("--parallel", min=1, help="How many checks run at the same time.")] = 4,
    strict: Strict = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Check a running server from outside, on every wire, including requests that it must refuse.

    Exits with 0 when the server conforms, 1 when a check failed.
    """
    for name in wire or ():
        if name not in WIRES:
            raise typer.BadParameter(f"--wire {name}: choose from {', '.join(WIRES)}")
    check_out(out)
    report = run(
        conform(
            url,
            token=token,
            other_token=other_token,
            limited_token=limited_token,
            wires=wire or None,
            environment=environment,
            split=split,
            private=private or (),
            seconds=timeout,
            parallel=parallel,
            strict=strict,
            on_verdict=None if as_json else _show,
        )
    )
    if not as_json:
        _summarize(report)
    finish([report], report.as_json(), out=out, as_json=as_json)


def _show(verdict: Verdict) -> None:
    requirements = f" [{', '.join(verdict.requirements)}]" if verdict.requirements else ""
    details = [verdict.detail + requirements] if verdict.detail else []
    print_verdict(verdict, f"{verdict.wire:7}", " (negative)" if verdict.negative else "", details=details)


def _by_module(report: Report) -> Table:
    """Return a table of the modules: how many of their checks have which status, or that the server has them not."""
    table = Table("module", box=None, pad_edge=False, header_style="")
    for status in report.STATUSES:
        table.add_column(status, justify="right", header_style="")
    for name, found in report.by_module().items():
        counts = [str(found[status]) for status in report.STATUSES]
        if not found["announced"] and not any(found[status] for status in report.STATUSES if status != "skipped"):
            name += " (not announced)"
        table.add_row(name, *counts)
    return table


def _summarize(report: Report) -> None:
    console.print(_by_module(report), soft_wrap=True)
    counts = ", ".join(f"{number} {status}" for status, number in report.counts().items())
    console.print(shown(f"{report.environment} on {', '.join(report.wires)}: {counts}"), soft_wrap=True)
    if report.plain_ors:
        console.print(
            shown("The server speaks only ORS; rules that only Ludus's profile of ORS adds are notes.", "dim"),
            soft_wrap=True,
        )
