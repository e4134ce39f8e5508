"""Fill the blocks of the READMEs and docs/ that are written elsewhere: snippets, the command line, tables of the code.

    python scripts/generate_docs.py            fill them
    python scripts/generate_docs.py --check    exit with 1 when one is stale, writing nothing

A block stands between `<!-- begin: NAME -->` and `<!-- end -->`. NAME is a file of the repository, which is shown as
code, or one of `GENERATORS`.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import package_tables

from ludus import harnesses
from ludus.cli import _lazy
from ludus.cli.app import app as cli_app
from ludus.protocol import METHODS, lifecycle
from ludus.protocol.lifecycle import EVENT_OF_REASON, EndReason, Event, advance
from ludus.validation import CHECKS
from ludus.validation.core.surroundings import CAUSES

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "*/README.md", "docs/**/*.md")
BLOCK = re.compile(r"(?P<begin><!-- begin: (?P<name>[^>]+?) -->\n)(?P<body>.*?)(?P<end><!-- end -->)", re.DOTALL)
LANGUAGES = {
    ".py": "python",
    ".mjs": "javascript",
    ".toml": "toml",
    ".sh": "bash",
    ".json": "json",
    ".txt": "text",
    ".conf": "nginx",
}


def main() -> int:
    """Fill or check every page; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a block is stale")
    check = parser.parse_args().check
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        filled = fill(text)
        if filled != text:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(filled, encoding="utf-8")
    for name in stale:
        print(f"{'stale' if check else 'filled'}: {name}")
    return int(check and bool(stale))


def pages() -> Iterator[Path]:
    """Every page that may hold blocks."""
    for pattern in PAGES:
        yield from sorted(ROOT.glob(pattern))


def fill(text: str) -> str:
    """`text` with every block as it should be.

    Raises:
        SystemExit: a block names neither a file nor a generator.
    """
    return BLOCK.sub(lambda match: f"{match['begin']}{body(match['name'])}{match['end']}", text)


def body(name: str) -> str:
    """What belongs into the block of that name."""
    if name in GENERATORS:
        return GENERATORS[name]().rstrip("\n") + "\n"
    path = ROOT / name
    if not path.is_file():
        raise SystemExit(f"a block is called {name!r}, and that is neither a file nor one of {', '.join(GENERATORS)}")
    return f"```{LANGUAGES.get(path.suffix, '')}\n{path.read_text(encoding='utf-8').rstrip()}\n```\n"


def lifecycle_diagram() -> str:
    """The episode's statuses, from the table that the server runs by."""
    return f"```mermaid\n{lifecycle.mermaid()}```\n"


def end_reasons() -> str:
    """Why an episode may end, with the status it ends in."""
    source = (ROOT / "protocol/ludus/protocol/lifecycle.py").read_text(encoding="utf-8").partition("class EndReason")[2]
    lines = ["| end reason | status | what it says |", "|---|---|---|"]
    for reason in EndReason:
        event = EVENT_OF_REASON[reason]
        said = re.search(rf'    {reason.name} = "{reason}"\n    """(.+?)"""', source, re.DOTALL)
        status = advance(lifecycle.EpisodeStatus.RUNNING, event if isinstance(event, Event) else Event(event))
        lines.append(f"| `{reason}` | {status} | {said[1] if said else ''} |")
    return "\n".join(lines)


def methods() -> str:
    """The extension's methods with the scope each needs."""
    lines = ["| method | scope | what it does |", "|---|---|---|"]
    lines += [f"| `{method.name}` | `{method.scope}` | {method.summary} |" for method in METHODS.values()]
    return "\n".join(lines)


def validation_checks() -> str:
    """What `ludus validate` looks for, and what others call it."""
    lines = ["| kind | what holds for an environment that passes | elsewhere called |", "|---|---|---|"]
    lines += [
        f"| `{check.kind}` | {check.title} | {', '.join(f'`{name}`' for name in check.peers) or '–'} |"
        for check in CHECKS
    ]
    return "\n".join(lines)


def causes_of_differences() -> str:
    """What an environment's results may depend on by mistake, and the remedies."""
    lines = ["| `cause` | results follow | what to do |", "|---|---|---|"]
    lines += [f"| `{one.name}` | {one.what} | {one.advice} |" for one in CAUSES.values()]
    return "\n".join(lines)


HEADLINES = ("channel steps/s", "ORS `/call`", "trainer: whole loop")
"""Which rows of `benchmarks/RESULTS.md` README.md shows, by how they begin."""


def figures() -> str:
    """Return the head and three rows of the last committed benchmark table."""
    results = ROOT / "benchmarks" / "RESULTS.md"
    if not results.exists():
        return "Not measured yet: `make bench` writes `benchmarks/RESULTS.md`.\n"
    text = results.read_text(encoding="utf-8")
    table = re.search(r"^## Figures\n+((?:\|.*\n)+)", text, re.MULTILINE)
    if table is None:
        return "`benchmarks/RESULTS.md` holds no table.\n"
    rows = table[1].splitlines()
    shown = [next(row for row in rows if row.startswith(f"| {start}")) for start in HEADLINES]
    return "\n".join([*rows[:2], *shown]) + "\n"


def command_line() -> str:
    """Every subcommand with its arguments and options, from the program itself.

    The commands are those of pyproject.toml; what is installed may be older, or hold plugins.
    """
    import typer

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"][_lazy.GROUP]
    entries = [EntryPoint(name, value, _lazy.GROUP) for name, value in declared.items()]
    _lazy.entry_points = lambda *, group: entries  # type: ignore[attr-defined, assignment]
    group: Any = typer.main.get_command(cli_app)
    context = group.make_context("ludus", [], resilient_parsing=True)
    parts = []
    for name in sorted(group.commands):
        _, command, _ = group.resolve_command(context, [name])
        parts += list(_describe(command, f"ludus {name}", context))
    return "\n".join(parts)


def _describe(command: Any, path: str, parent: Any) -> Iterator[str]:
    context = type(parent)(command, info_name=path.rpartition(" ")[2], parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## `{path}`\n"
    yield f"```text\n{path} {usage}\n```\n"
    if command.help:
        yield re.sub(r"\[/?bold\]", "`", command.help.split("\f")[0].strip()) + "\n"
    rows = [_row(parameter) for parameter in command.get_params(context) if not getattr(parameter, "hidden", False)]
    rows = [row for row in rows if row]
    if rows:
        yield "| argument or option | default | what it does |\n|---|---|---|"
        yield "\n".join(rows) + "\n"
    for name, child in sorted(getattr(command, "commands", {}).items()):
        yield from _describe(child, f"{path} {name}", context)


def _row(parameter: Any) -> str:
    if parameter.name == "help":
        return ""
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    default = parameter.default
    shown = "" if default is None or callable(default) or default in ((), [], "", False) else f"`{default}`"
    text = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
    return f"| {names} | {shown} | {text} |"


HOSTED_PACKAGES: dict[str, str] = {
    "agentenv": "agentenv-framework", "aviary": "fhaviary", "bfcl": "bfcl-eval", "cube": "cube-standard",
    "gymnasium": "gymnasium", "inspect": "inspect-ai",
    "nemo-gym": "nemo-gym", "openenv": "openenv", "ors": "ors-sdk", "reasoning-gym": "reasoning-gym",
    "textarena": "textarena", "verifiers": "verifiers",
}  # fmt: skip
"""The package that each format hosts, whose pinned version its tests meet."""

PAGES_OF = {"docker": "mcp"}
"""Formats that the page of another one describes."""


def formats() -> str:
    """The formats, what each hosts, and the version of the hosted package that its tests meet."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = {
        name: version
        for file in sorted((ROOT / "scripts" / "peers").glob("*.txt"))
        for name, version in re.findall(r"^([a-z0-9-]+)==(\S+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    lines = ["| format | what it hosts | tested with |", "|---|---|---|"]
    for name, value in sorted(project["entry-points"]["ludus.formats"].items()):
        module = ROOT / "environments" / (value.partition(":")[0].replace(".", "/"))
        file = module.with_suffix(".py") if module.with_suffix(".py").exists() else module / "__init__.py"
        about = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]
        package = HOSTED_PACKAGES.get(name)
        tested = f"{package} {pins[package]}" if package is not None else "–"
        page = f"formats/{PAGES_OF.get(name, name)}.md"
        shown = f"[`{name}:`]({page})" if (ROOT / "docs" / page).exists() else f"`{name}:`"
        lines.append(f"| {shown} | {about.rpartition('`: ')[2] or about} | {tested} |")
    return "\n".join(lines)


def promises() -> str:
    """What each format's environment says of itself, and its times, as benchmarks/hosted_formats.py recorded them."""
    rows = json.loads((ROOT / "docs" / "assets" / "hosted_formats.json").read_text(encoding="utf-8"))
    lines = [
        "| format | equal seeds, equal episodes | forks | not promised | a start | a call |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in sorted(rows.items()):
        call = "–" if row["call_ms"] is None else f"{row['call_ms']:.1f} ms"
        missing = ", ".join(one for one in row["not_promised"] if one != "seeds") or "–"
        marks = ["yes" if row[what] else "no" for what in ("seeds", "forks")]
        lines.append(f"| `{name}:` | {marks[0]} | {marks[1]} | {missing} | {row['start_ms']:.0f} ms | {call} |")
    return "\n".join(lines)


def agent_programs() -> str:
    """The programs of `ludus harness`, and what benchmarks/agent_programs.py recorded of each."""
    rows = json.loads((ROOT / "docs" / "assets" / "agent_programs.json").read_text(encoding="utf-8"))
    lines = [
        "| name | program | version | wire | samples of an episode | CPU of an episode | letters of the first prompt |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in harnesses.NAMES:
        program, row = harnesses.find_program(name), rows.get(name)
        measured = "not measured | – | –"
        if row is not None:
            own = "" if row["own_prompt_letters"] is None else f"; {row['own_prompt_letters']:,} with its own tools"
            measured = f"{row['samples']} | {row['cpu_seconds']:.1f} s | {row['prompt_letters']:,}{own}"
        title = f"{program.title}, by a command" if program.bridge else program.title
        lines.append(f"| `{name}` | {title} | {program.version} | {program.wire} | {measured} |")
    return "\n".join(lines)


def published_environments() -> str:
    """What `ludus validate` found in environments that others published."""
    found = json.loads((ROOT / "docs" / "assets" / "published_environments.json").read_text(encoding="utf-8"))
    titles = {check.kind: check.title for check in CHECKS}
    packages = ", ".join(f"{name} ({count})" for name, count in found["packages"].items())
    lines = [
        f"{found['environments']} environments, {found['tasks']} tasks of each split, {found['date']}: {packages}.",
        f"{found['without_findings']} of them have no finding.",
        "",
        "| kind | severity | environments | what does not hold |",
        "|---|---|---|---|",
    ]
    for kind, row in sorted(found["findings"].items(), key=lambda one: (one[1]["severity"], -one[1]["environments"])):
        lines.append(f"| `{kind}` | {row['severity']} | {row['environments']} | {titles[kind]} |")
    return "\n".join(lines)


GENERATORS: dict[str, Callable[[], str]] = {
    "formats": formats,
    "promises": promises,
    "agent programs": agent_programs,
    "published environments": published_environments,
    "lifecycle": lifecycle_diagram,
    "end reasons": end_reasons,
    "methods": methods,
    "command line": command_line,
    "figures": figures,
    "validation checks": validation_checks,
    "causes of differences": causes_of_differences,
    "packages": package_tables.all_packages,
    **{f"packages of {folder}": partial(package_tables.packages_of, folder) for folder in package_tables.FOLDERS},
}

if __name__ == "__main__":
    sys.exit(main())
