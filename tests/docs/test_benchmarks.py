"""The page of benchmarks has a command for each, and all of them can be parsed."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel

from ludus.formats.hosting import HostingSettings
from ludus.server.commands import serve as commands
from ludus.server.tasks.formats import formats, parse_source, with_options

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "benchmarks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
LINES = [line for block in BLOCKS for line in block.splitlines() if line.startswith("ludus ")]
BENCHMARKS = ("tau2-bench", "BFCL", "GPQA", "IFEval", "AIME", "Terminal-Bench 2", "SWE-bench Verified")


def parameters_of(line: str) -> dict[str, Any]:
    """What the command line of `ludus serve` makes of a line."""
    app = typer.Typer()
    commands.register(app)
    group: Any = typer.main.get_command(app)
    program, command, *arguments = shlex.split(line, comments=True)
    assert (program, command) == ("ludus", "serve")
    parameters: dict[str, Any] = group.commands["serve"].make_context("serve", arguments).params
    return parameters


def settings_of(format_name: str) -> type[BaseModel]:
    """The model of a format's options."""
    name = formats()[format_name].module
    package = importlib.import_module(name)
    module = importlib.import_module(f"{name}.settings") if hasattr(package, "__path__") else package
    found = [
        one
        for one in vars(module).values()
        if isinstance(one, type)
        and issubclass(one, BaseModel)
        and one.__name__.endswith("Settings")
        and one is not HostingSettings
    ]
    assert len(found) == 1, (format_name, found)
    return found[0]


@pytest.mark.parametrize("line", LINES)
def test_a_command_has_options_that_the_command_and_the_format_have(line: str) -> None:
    given = parameters_of(line)
    specs = with_options(given["environments"], commands._format_options(given))
    for spec in specs:
        source = parse_source(spec)
        assert source is not None
        source.settings(settings_of(source.format))


def test_each_benchmark_has_a_command_and_says_how_far_it_was_tried() -> None:
    sections = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
    table = [row.split("|")[1:-1] for row in sections["How far each came"].splitlines() if row.startswith("| ")][1:]
    tried = {row[0].strip() for row in table}
    for benchmark in BENCHMARKS:
        assert "\nludus serve " in sections[benchmark], benchmark
        assert benchmark in tried, benchmark
    assert all(len(row) == 4 and all(cell.strip() for cell in row) for row in table)
    served = " ".join(LINES)
    for row in table:
        target = row[1].split("`")[1].rstrip("…")
        assert target in served, target
