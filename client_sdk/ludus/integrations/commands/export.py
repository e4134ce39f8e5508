"""`ludus export`: tasks, or what was played, as a dataset for trainers that read one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast, get_args

import typer

from ludus.cli.common import EnvironmentName, Token, client_of, console, find_environment, is_local, run, shown
from ludus.cli.dataset_files import FileKind, whole_file
from ludus.cli.episodes import print_report, stored_episodes
from ludus.client import ServerAddress
from ludus.client.dataset_rows import TaskForm, task_row
from ludus.client.demonstrations import Report, Selection, group_rows, pair_rows
from ludus.integrations.commands import harbor as _export_harbor
from ludus.integrations.commands import package as _export_package
from ludus.integrations.packages import PackageForm

COMMANDS: Final = {"export": "Write tasks or what was played as a dataset, or an environment as a package."}

FormName = Literal["chat", "nemo-gym", "openrlhf", "skyrl", "verl", "pairs", "groups", "harbor", "gymnasium", "openenv"]
EpisodeForm = Literal["pairs", "groups"]
"""The forms of rows of episodes that were played."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export", help=COMMANDS["export"])(export)


def export(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="Address of a running server, or environment to serve while the command runs: NAME, module:Class or "
            "file.py:Class. For `pairs` and `groups`, a file of trajectories.",
        ),
    ],
    environment: EnvironmentName = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File or folder; tasks.jsonl by default.", show_default=False)
    ] = None,
    split: Annotated[str | None, typer.Option("--split", "-s", help="Split; the first one by default.")] = None,
    n: Annotated[
        int | None, typer.Option("-n", help="How many tasks; all by default, which an endless split refuses.", min=1)
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of every episode, if prompts depend on it.")] = None,
    form: Annotated[
        FormName,
        typer.Option(
            "--form",
            help="`chat`: messages and tools; `nemo-gym`, `openrlhf`, `skyrl`, `verl`: rows of that trainer; "
            "`pairs`, `groups`: scored episodes of a file, for preference learning or GRPO; "
            "`harbor`: a folder for each task; "
            "`gymnasium`, `openenv`: the whole environment as a package of that system.",
        ),
    ] = "chat",
    to: Annotated[
        FileKind | None, typer.Option("--to", help="Kind of file; by the name of --out by default.", show_default=False)
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", help="The server's address in what is written; TARGET by default.", metavar="URL"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file or package.")] = False,
    name: _export_package.NameOption = None,
    action: _export_package.ActionOption = None,
    concurrency: Annotated[int, typer.Option("--concurrency", help="Episodes at the same time.", min=1)] = 16,
    token: Token = None,
) -> None:
    """Write the prompt of each task of a split, the scored episodes of a file, or an environment as a package.

    Rows of tasks hold no rewards, which come from the server. Their field `ludus` is the address of the task, which
    `TaskAddress.from_json` reads; it holds no token. Parquet needs pyarrow.

    [bold]ludus export http://127.0.0.1:8000 guess_number --split train -n 1000[/bold]
    [bold]ludus export http://10.0.0.5:8000 --form verl --out train.parquet[/bold]
    [bold]ludus export games.jsonl --form pairs --out pairs.jsonl[/bold]
    [bold]ludus export wordle --address http://10.0.0.5:8000 --form harbor --out tasks -n 100[/bold]
    [bold]ludus export guess_number --form gymnasium --out guess_number[/bold]
    """
    if form in get_args(PackageForm):
        _refuse(form, "writes a whole environment", {"--to": to, "-n": n, "--seed": seed})
        _export_package.PackageExport(
            cast(PackageForm, form), target, environment, out, address, split, name, action, overwrite, token
        ).run()
        return
    _refuse(form, "writes no package", {"--name": name, "--action": action})
    if form == "harbor":
        _refuse(form, "writes folders", {"--to": to})
        where = _server_address(target, address)
        _export_harbor.HarborExport(
            target, environment, out or Path("tasks"), where, split, n, seed, overwrite, concurrency, token
        ).run()
        return
    kind: FileKind = to or ("parquet" if out is not None and out.suffix == ".parquet" else "jsonl")
    path = out or Path(f"tasks.{kind}" if form in get_args(TaskForm) else f"{form}.{kind}")
    if path.exists() and not overwrite:
        raise typer.BadParameter(f"{path} exists; say --overwrite or another --out")
    if form in get_args(EpisodeForm):
        given = {"ENV": environment, "--split": split, "-n": n, "--seed": seed, "--address": address}
        _refuse(form, "takes all episodes of a file", given)
        _write_episodes(cast(EpisodeForm, form), Path(target), path, kind)
        return
    if target.endswith(".jsonl"):
        raise typer.BadParameter(f"{target} is no environment; a file of trajectories needs --form pairs or groups")
    server = ServerAddress(_server_address(target, address))

    async def go() -> tuple[str, int]:
        async with client_of(target, token, "auto") as client:
            info = find_environment(await client.environments(), environment, target)
            name = split or info.splits[0].name
            count = 0
            with whole_file(path, kind) as write:
                async for preview in client.environment(info.name).previews(
                    name, n=n, seed=seed, concurrency=concurrency
                ):
                    task = server.task(info.name, name, preview.task.id, None if seed is None else preview.seed)
                    write(task_row(cast(TaskForm, form), preview, task))
                    count += 1
            return name, count

    name, count = run(go())
    console.print(shown(f"{path}: {count:,} tasks of split {name}"), soft_wrap=True)


def _server_address(target: str, address: str | None) -> str:
    """Return the address of the server that will play the tasks.

    Raises:
        BadParameter: none is given, or it is no address.
    """
    if address is None and is_local(target):
        raise typer.BadParameter("say --address URL: where the environment will be served when the tasks are played")
    if address is not None and is_local(address):
        raise typer.BadParameter(f"--address {address}: give a server's address, such as http://10.0.0.5:8000")
    return (address or target).rstrip("/")


def _refuse(form: str, why: str, given: Mapping[str, object]) -> None:
    """Refuse options that a form cannot use.

    Raises:
        BadParameter: one of them was given.
    """
    if useless := [option for option, value in given.items() if value is not None]:
        raise typer.BadParameter(f"--form {form} {why}; leave out {', '.join(useless)}")


def _write_episodes(form: EpisodeForm, source: Path, path: Path, kind: FileKind) -> None:
    """Write the rows of a file of trajectories, and print how many there are."""
    report = Report()
    with whole_file(path, kind) as write:
        for row in _EPISODE_ROWS[form](stored_episodes([source], f"--form {form}"), Selection(), report):
            write(row)
    none = "; no task has two scored episodes of unequal value" if form == "pairs" and not report.rows else ""
    console.print(shown(f"{path}: {report.rows:,} {form}{none}"), soft_wrap=True)
    print_report(report)


_EPISODE_ROWS: Final[Mapping[EpisodeForm, Callable[..., Iterator[dict[str, Any]]]]] = {
    "pairs": pair_rows,
    "groups": group_rows,
}
