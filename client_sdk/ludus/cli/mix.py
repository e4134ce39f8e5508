"""`ludus mix`: check a mix file, and show how it shares the groups of a run."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from ludus.cli.common import Json, console, print_json, run, served_address, shown

COMMANDS: Final = {"mix": "Check a mix of environments, and show how it shares the groups of a run."}

ROWS: Final = 12
"""The most rows of the simulated schedule."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    mix = typer.Typer(help=COMMANDS["mix"], no_args_is_help=True, rich_markup_mode="rich")
    mix.command("check")(check)
    mix.callback()(_group)
    app.add_typer(mix, name="mix")


def _group() -> None:
    """Check a mix of environments, and show how it shares the groups of a run.

    A mix file names sources of tasks and how they share the groups of a run. `ludus train --mix FILE` learns from it,
    and `ludus.client.mix.open_mix` draws its tasks in a program.
    """


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The mix file (TOML).")],
    offline: Annotated[
        bool, typer.Option("--offline", help="Check the file only: connect to no server and serve nothing.")
    ] = False,
    groups: Annotated[
        int, typer.Option("--groups", help="Groups of the simulated schedule.", min=1, max=100_000)
    ] = 400,
    learned_after: Annotated[
        int, typer.Option("--learned-after", help="Groups within which the simulation learns a source.", min=1)
    ] = 100,
    group_size: Annotated[int, typer.Option("--group-size", help="Episodes of each simulated group.", min=1)] = 8,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the simulation.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Check a mix file: its fields, its sources on their servers, and the shares that follow from it.

    The schedule is a simulation in which the pass rate of each source rises evenly from 0 to 1 within --learned-after
    groups of it. Exits with 3 when the file or a source is wrong, and with 4 when a server is unreachable.

    [bold]ludus mix check mix.toml[/bold]
    [bold]ludus mix check mix.toml --offline --groups 1000 --learned-after 200[/bold]
    """
    from ludus.client.mix import learning, read_mix, simulate

    mix = read_mix(file)
    counts = None if offline else run(_resolved(mix))
    sources = mix.mixer_sources()
    learners = {source.label: learning(learned_after) for source in sources}
    every = max(1, groups // ROWS)
    moments = simulate(
        sources, mix.policy, learners, groups=groups, group_size=group_size, seed=seed, every=every
    )  # fmt: skip
    if as_json:
        print_json(
            {
                "policy": mix.policy.model_dump(mode="json"),
                "sources": [
                    {**source.model_dump(mode="json", exclude={"secrets"}), "name": source.name, "label": source.title}
                    | ({} if counts is None else {"tasks": counts[source.title]})
                    for source in mix.sources
                ],
                "schedule": [
                    {
                        "groups": moment.groups,
                        "stage": moment.stage,
                        "shares": moment.shares,
                        "pass_rates": moment.pass_rates,
                    }
                    for moment in moments
                ],
            }
        )
        return
    _print_sources(mix, counts, moments[0].shares)
    console.print(
        shown(
            f"Simulation of {groups} groups with {group_size} episodes: the pass rate of a source rises from 0 to 1 "
            f"within {learned_after} of its groups."
        )
    )
    _print_schedule(moments, staged=mix.policy.kind == "stages")


async def _resolved(mix: Any) -> dict[str, int | None]:
    """Return the number of tasks of each source, by label; None for endless splits.

    Raises:
        LudusError: a server is unreachable or does not have the source.
    """
    from ludus.client.mix import open_mix

    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(served_address(mix.serve)) if mix.serve else None
        tasks = await stack.enter_async_context(open_mix(mix, served=served))
        found: dict[str, int | None] = {}
        for source in mix.sources:
            splits = tasks.info(source.title).splits
            found[source.title] = next(split.count for split in splits if split.name == source.split)
        return found


def _print_sources(mix: Any, counts: dict[str, int | None] | None, shares: dict[str, float]) -> None:
    staged = mix.policy.kind == "stages"
    table = Table("source", "environment", "split", "tasks", "weight", *(["stage"] if staged else []), "first share")
    for column in table.columns[:3]:
        column.overflow = "fold"
    for source in mix.sources:
        tasks = "not asked" if counts is None else "endless" if (n := counts[source.title]) is None else f"{n:,}"
        table.add_row(
            shown(source.title), shown(source.name), shown(source.split), tasks, f"{source.weight:g}",
            *([str(source.stage)] if staged else []), f"{shares[source.title]:.1%}",
        )  # fmt: skip
    console.print(shown(f"policy: {mix.policy.kind}"))
    console.print(table)


def _print_schedule(moments: Any, *, staged: bool) -> None:
    labels = list(moments[0].shares)
    table = Table("groups", *(["stage"] if staged else []))
    for label in labels:
        table.add_column(shown(f"{label}: share, pass rate"), overflow="fold")
    for moment in moments:
        cells = []
        for label in labels:
            rate = moment.pass_rates[label]
            cells.append(f"{moment.shares[label]:.1%}, {'–' if rate is None else f'{rate:.0%}'}")
        table.add_row(str(moment.groups), *([str(moment.stage)] if staged else []), *cells)
    console.print(table)
