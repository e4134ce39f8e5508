"""`ludus envs`, `ludus tasks` and `ludus show`: list the environments and tasks of a server."""

from __future__ import annotations

import functools
from importlib.metadata import Distribution, entry_points
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ludus.cli.common import (
    TARGET_HELP,
    EnvironmentName,
    Json,
    TargetName,
    Token,
    WireOption,
    client_of,
    console,
    find_environment,
    print_json,
    run,
    shown,
    signature,
)
from ludus.protocol.text import printable

if TYPE_CHECKING:  # `ludus envs --local` needs neither the client nor the protocol's models
    from ludus.client.environment import RemoteEnvironment
    from ludus.protocol.episodes import EnvironmentInfo, TaskRow

COMMANDS: Final = {
    "envs": "List environments.",
    "tasks": "List the tasks of a split.",
    "show": "Show an environment, or one of its tasks.",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("envs", help=COMMANDS["envs"])(envs)
    app.command("tasks", help=COMMANDS["tasks"])(tasks)
    app.command("show", help=COMMANDS["show"])(show)


SplitOption = Annotated[str | None, typer.Option("--split", "-s", help="Name of the split; the first one by default.")]


LocalOption = Annotated[
    bool, typer.Option("--local", help="List what is installed here, environments and formats, without importing it.")
]


def envs(
    target: Annotated[str | None, typer.Argument(metavar="TARGET", help=TARGET_HELP, show_default=False)] = None,
    local: LocalOption = False,
    token: Token = None,
    wire: WireOption = "auto",
    as_json: Json = False,
) -> None:
    """List the environments of a server, or of a file or module and their variants, or those installed here."""
    if local == (target is not None):
        raise typer.BadParameter("give either a TARGET or --local")
    if target is None:
        _list_installed(as_json)
        return

    async def go() -> tuple[EnvironmentInfo, ...]:
        async with client_of(target, token, wire) as client:
            return await client.environments()

    found = run(go())
    if as_json:
        print_json([info.model_dump(mode="json") for info in found])
        return
    for info in found:
        splits = ", ".join(f"{s.name} {'endless' if s.count is None else s.count}" for s in info.splits)
        tools = ", ".join(tool.name for tool in info.tools) or "none"
        console.print(shown(f"{info.name} {info.version}", style="bold"), soft_wrap=True)
        first = info.description.strip().partition("\n")[0]
        for line in (first, f"splits: {splits}", f"tools: {tools}"):
            console.print(shown(f"  {line}"), soft_wrap=True)


def _list_installed(as_json: bool) -> None:
    """Print the environments and formats of the installed packages, by their entry points alone."""
    groups = {"environments": "ludus.environments", "formats": "ludus.formats"}
    installed = entry_points()
    package = functools.cache(_package)
    found = {
        title: [
            {"name": entry.name, "source": entry.value, "package": package(entry.dist)}
            for entry in sorted(installed.select(group=group), key=lambda entry: entry.name)
        ]
        for title, group in groups.items()
    }
    if as_json:
        print_json(found)
        return
    for title, usage in (("environments", "NAME"), ("formats", "FORMAT:TARGET")):
        console.print(shown(f"{title}: ludus serve {usage}", style="bold"), soft_wrap=True)
        for row in found[title]:
            console.print(shown(f"  {row['name']}  ({row['package']}: {row['source']})"), soft_wrap=True)


def _package(package: Distribution | None) -> str:
    return "" if package is None else f"{package.metadata['Name']} {package.metadata['Version']}"


def tasks(
    target: TargetName,
    environment: EnvironmentName = None,
    split: SplitOption = None,
    n: Annotated[int, typer.Option("-n", help="How many.", min=1)] = 20,
    start: Annotated[int, typer.Option("--start", help="Index of the first.", min=0)] = 0,
    token: Token = None,
    wire: WireOption = "auto",
    as_json: Json = False,
) -> None:
    """List the tasks of a split."""

    async def go() -> list[TaskRow]:
        async with client_of(target, token, wire) as client:
            info = find_environment(await client.environments(), environment, target)
            name = split or info.splits[0].name
            rows: list[TaskRow] = []
            async for row in client.environment(info.name).tasks(name, page=min(1000, start + n)):
                if row.index >= start:
                    rows.append(row)
                if len(rows) == n:
                    break
            return rows

    from rich.markup import escape
    from rich.table import Table

    found = run(go())
    if as_json:
        print_json([row.model_dump(mode="json") for row in found])
        return
    names = list(dict.fromkeys(name for row in found for name in row.fields))
    table = Table("index", "id", *(escape(printable(name)) for name in names))
    for row in found:
        table.add_row(str(row.index), shown(row.id), *(shown(str(row.fields.get(name, ""))) for name in names))
    console.print(table)


def show(
    target: TargetName,
    environment: EnvironmentName = None,
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", help="Id or index of a task.")] = None,
    split: SplitOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the episode whose prompt is shown.")] = None,
    token: Token = None,
    wire: WireOption = "auto",
    as_json: Json = False,
) -> None:
    """Show an environment, or one of its tasks with the prompt that a policy would get."""

    async def go() -> None:
        async with client_of(target, token, wire) as client:
            info = find_environment(await client.environments(), environment, target)
            if task is None:
                _show_environment(info, as_json)
            else:
                await _show_task(client.environment(info.name), split or info.splits[0].name, task, seed, as_json)

    run(go())


def _show_environment(info: EnvironmentInfo, as_json: bool) -> None:
    if as_json:
        print_json(info.model_dump(mode="json"))
        return
    from rich.panel import Panel

    can = {"seeds": info.seedable, "grades": info.gradable, "forks": info.forkable, "scores groups": info.group_scoring}
    bounds = "unknown" if info.reward_range is None else "{:g} to {:g}".format(*info.reward_range)
    console.print(Panel(shown(info.description.strip() or "(no description)"), title=f"{info.name} {info.version}"))
    for split in info.splits:
        count = "endless" if split.count is None else f"{split.count} tasks"
        console.print(shown(f"  split {split.name} ({split.type}): {count}"))
    console.print(shown(f"  reward: {bounds}"))
    console.print(shown(f"  can: {', '.join(name for name, able in can.items() if able) or 'nothing further'}"))
    for tool in info.tools:
        console.print(shown(f"  tool {signature(tool)}", style="bold"))
        console.print(shown(f"    {tool.description.strip().partition(chr(10))[0]}"))


async def _show_task(environment: RemoteEnvironment, split: str, task: str, seed: int | None, as_json: bool) -> None:
    row = await find_task(environment, split, task)
    async with environment.episode(split=split, task=row.id, seed=seed) as episode:
        prompt = episode.prompt
    if as_json:
        print_json({"task": row.model_dump(mode="json"), "prompt": [m.model_dump(mode="json") for m in prompt]})
        return
    from rich.panel import Panel

    from ludus.protocol.content import text_of

    for name, value in row.fields.items():
        console.print(shown(f"{name}: {value}"))
    for message in prompt:
        console.print(Panel(shown(text_of(message.content)), title=f"{row.id}: {message.role}"))


async def find_task(environment: RemoteEnvironment, split: str, task: str) -> TaskRow:
    """Return a task by its id, or by its index if no id is that number.

    Raises:
        TaskNotFound: the split has neither.
    """
    from ludus.protocol.errors import TaskNotFound

    try:
        return await environment.task(split, task=task)
    except TaskNotFound:
        if not task.isdecimal():
            raise
        return await environment.task(split, index=int(task))
