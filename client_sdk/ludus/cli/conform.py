"""`ludus conform`: check whether a running server conforms to the standard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer

from ludus.cli._common import Json, Token, Url, console, print_json, run, shown
from ludus.conformance.checks import Verdict
from ludus.conformance.report import WIRES, Report, conform

COMMANDS: Final = {"conform": "Check whether a server keeps to the standard."}

_MARKS: Final = {"passed": ("✓", "green"), "failed": ("✗", "red"), "noted": ("!", "yellow"), "skipped": ("–", "dim")}

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
        help="Token of somebody else: what must be hidden.",
    ),
]
LimitedToken = Annotated[
    str | None,
    typer.Option(
        "--limited-token",
        envvar="LUDUS_LIMITED_TOKEN",
        metavar="TOKEN",
        help="Token with tasks:read and episodes:run only: what scopes must keep closed.",
    ),
]
Private = Annotated[
    list[str] | None,
    typer.Option("--private", metavar="TEXT", help="A text that no message may hold, such as an answer. Repeatable."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("conform", help=COMMANDS["conform"])(conform_command)


def conform_command(
    url: Url,
    wire: WireOption = None,
    environment: Annotated[str | None, typer.Option("--environment", help="Play this one; else the first.")] = None,
    split: Annotated[str | None, typer.Option("--split", help="Take tasks from here; else the first but test.")] = None,
    token: Token = None,
    other_token: OtherToken = None,
    limited_token: LimitedToken = None,
    private: Private = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that one answer may take.")] = 30.0,
    parallel: Annotated[int, typer.Option("--parallel", min=1, help="Checks that run at one time.")] = 4,
    strict: Annotated[bool, typer.Option("--strict", help="Let notes count as failures.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the JSON report here.", dir_okay=False)] = None,
    as_json: Json = False,
) -> None:
    """Check a running server from outside, on every wire: what it must do, and what it must refuse.

    Exits with 0 when the server conforms, 1 when a check failed.
    """
    for name in wire or ():
        if name not in WIRES:
            raise typer.BadParameter(f"--wire {name}: choose from {', '.join(WIRES)}")
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
    if out is not None:
        text = json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n"
        out.write_text(text, encoding="utf-8")
    if as_json:
        print_json(report.as_json())
    else:
        _summarize(report)
    if not report.passed:
        raise typer.Exit(1)


def _show(verdict: Verdict) -> None:
    mark, style = _MARKS[verdict.status]
    line = shown(f"{mark} ", style)
    line.append_text(shown(f"{verdict.wire:7} {verdict.title}"))
    if verdict.negative:
        line.append_text(shown(" (negative)", "dim"))
    console.print(line, soft_wrap=True)
    if verdict.detail:
        requirements = f" [{', '.join(verdict.requirements)}]" if verdict.requirements else ""
        console.print(shown(f"    {verdict.detail}{requirements}", style), soft_wrap=True)


def _summarize(report: Report) -> None:
    counts = report.as_json()["counts"]
    told = ", ".join(f"{number} {status}" for status, number in counts.items())
    console.print(shown(f"{report.environment} on {', '.join(report.wires)}: {told}"), soft_wrap=True)
    if report.plain_ors:
        console.print(shown("The server speaks ORS alone; what only our profile of ORS demands is noted.", "dim"))
