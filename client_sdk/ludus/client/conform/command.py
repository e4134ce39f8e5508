"""`ludus conform`: check a running server from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.markup import escape

from ludus.client.cli._common import Json, Token, Url, console, print_json, run
from ludus.client.conform.checks import Verdict
from ludus.client.conform.report import WIRES, conform

COMMANDS: Final = {"conform": "Check whether a server keeps to the standard."}

_MARKS: Final = {"passed": "[green]✓[/green]", "failed": "[red]✗[/red]", "skipped": "[yellow]–[/yellow]"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("conform", help=COMMANDS["conform"])(conform_command)


def conform_command(
    url: Url,
    wire: Annotated[
        list[str] | None, typer.Option("--wire", help="Check only this: channel, mcp, play or ors. May be repeated.")
    ] = None,
    environment: Annotated[str | None, typer.Option("--environment", help="Play this one; else the first.")] = None,
    split: Annotated[str | None, typer.Option("--split", help="Take tasks from here; else the first but test.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the JSON report here.")] = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Check a running server from outside, on every wire: what it does, and what it must refuse.

    Exit code 0 when it conforms, 1 when a check failed.
    """
    wires = wire or list(WIRES)
    for name in wires:
        if name not in WIRES:
            raise typer.BadParameter(f"--wire {name}: choose from {', '.join(WIRES)}")
    show = None if as_json else _show
    report = run(conform(url, token=token, wires=wires, environment=environment, split=split, on_verdict=show))
    document = report.as_json()
    if out is not None:
        out.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if as_json:
        print_json(document)
    else:
        counts = document["counts"]
        console.print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    if not report.passed:
        raise typer.Exit(1)


def _show(verdict: Verdict) -> None:
    kind = "refuses" if verdict.negative else ""
    console.print(f"{_MARKS[verdict.status]} {verdict.wire:7} {escape(verdict.title)} [dim]{kind}[/dim]")
    if verdict.detail:
        requirements = f" ({', '.join(verdict.requirements)})" if verdict.requirements else ""
        console.print(
            f"    {escape(verdict.detail)}{requirements}", style="red" if verdict.status == "failed" else "dim"
        )
