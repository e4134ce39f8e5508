"""What `ludus conform` and `ludus validate` share: how a verdict is printed and how the report is written."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ludus.checks import Report, Status, Verdict
from ludus.cli.common import console, print_json, shown

MARKS: Final[dict[Status, tuple[str, str]]] = {
    "passed": ("✓", "green"), "failed": ("✗", "red"), "noted": ("!", "yellow"), "warned": ("!", "yellow"),
    "waived": ("~", "yellow"), "skipped": ("–", "dim"), "broken": ("✗", "red"),
}  # fmt: skip
"""The mark and the style of each status."""

Strict = Annotated[bool, typer.Option("--strict", help="Count notes and warnings as failures.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write the JSON report to this file.", dir_okay=False)]


def check_out(out: Path | None) -> None:
    """Raise `BadParameter` if the report cannot be written to a file."""
    if out is not None and not os.access(out if out.exists() else out.absolute().parent, os.W_OK):
        raise typer.BadParameter(
            f"cannot write {out}: its folder does not exist or is not writable", param_hint="--out"
        )


def print_verdict(
    verdict: Verdict, label: str, suffix: str = "", *, details: Sequence[str] = (), indent: int = 0
) -> None:
    """Print a verdict as one line, and the reasons why the check did not pass under it.

    Args:
        verdict: what to print.
        label: the text before the check's title.
        suffix: a dim text after the title.
        details: the lines under it, in the style of the status.
        indent: how many spaces stand before each line.
    """
    mark, style = MARKS[verdict.status]
    line = shown(" " * indent + f"{mark} ", style)
    line.append_text(shown(f"{label} {verdict.title}"))
    line.append_text(shown(suffix, "dim"))
    console.print(line, soft_wrap=True)
    for detail in details:
        console.print(shown(" " * (indent + 4) + detail, style), soft_wrap=True)


def finish(reports: Sequence[Report[Any]], value: Any, *, out: Path | None, as_json: bool) -> None:
    """Write the JSON report where the options say, and exit with 1 if a report did not pass.

    Args:
        reports: the reports that the command printed.
        value: the reports as JSON values.
        out: the file to write.
        as_json: whether to print the JSON values as well.

    Raises:
        Exit: with code 1, a report did not pass.
    """
    if out is not None:
        out.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if as_json:
        print_json(value)
    if not all(report.passed for report in reports):
        raise typer.Exit(1)
