"""`ludus export`: the prompts and tools of tasks as a dataset, for trainers that read one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TextIO

import typer

from ludus.cli._common import (
    EnvironmentName,
    TargetName,
    Token,
    client_of,
    console,
    find_environment,
    is_local,
    run,
    shown,
)
from ludus.client import Preview, ServerAddress
from ludus.client.formats import openai_chat, openai_responses

COMMANDS: Final = {"export": "Write the prompts and tools of tasks as a dataset."}

FormName = Literal["chat", "nemo-gym"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export", help=COMMANDS["export"])(export)


def export(
    target: TargetName,
    environment: EnvironmentName = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the rows, as JSON lines.")] = Path("tasks.jsonl"),
    split: Annotated[str | None, typer.Option("--split", "-s", help="Split; the first one by default.")] = None,
    n: Annotated[
        int | None, typer.Option("-n", help="How many tasks; all by default, which an endless split refuses.", min=1)
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of every episode, if prompts depend on it.")] = None,
    form: Annotated[
        FormName, typer.Option("--form", help="`chat`: messages and tools; `nemo-gym`: rows of NVIDIA NeMo Gym.")
    ] = "chat",
    address: Annotated[
        str | None,
        typer.Option("--address", help="The server's address in the rows; TARGET by default.", metavar="URL"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", help="Episodes at the same time.", min=1)] = 16,
    token: Token = None,
) -> None:
    """Write the prompt and the tools of each task of a split, one JSON object per line, without private fields.

    Rewards are not in the file: they come from the server. The field `ludus` of a row is the address of its task, which
    `TaskAddress.from_json` reads; it holds no token.

    [bold]ludus export http://127.0.0.1:8000 guess_number --split train -n 1000[/bold]
    [bold]ludus export my_env.py:MyEnv --address http://10.0.0.5:8000[/bold]
    """
    if address is None and is_local(target):
        raise typer.BadParameter("say --address URL: where the environment will be served when the rows are used")
    if address is not None and is_local(address):
        raise typer.BadParameter(f"--address {address}: give a server's address, such as http://10.0.0.5:8000")
    if out.exists() and not overwrite:
        raise typer.BadParameter(f"{out} exists; say --overwrite or another --out")
    server = ServerAddress((address or target).rstrip("/"))

    async def go() -> tuple[str, int]:
        async with client_of(target, token, "channel") as client:
            info = find_environment(await client.environments(), environment, target)
            name = split or info.splits[0].name
            with _whole_file(out) as file:
                count = 0
                async for preview in client.environment(info.name).previews(
                    name, n=n, seed=seed, concurrency=concurrency
                ):
                    task = server.task(info.name, name, preview.task.id, None if seed is None else preview.seed)
                    row = ROWS[form](preview) | {"ludus": task.to_json()}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                    count += 1
            return name, count

    name, count = run(go())
    console.print(shown(f"{out}: {count:,} tasks of split {name}"), soft_wrap=True)


@contextmanager
def _whole_file(out: Path) -> Iterator[TextIO]:
    """Yield a file that replaces `out` at the end of the block, and that is removed if an exception leaves it.

    Raises:
        BadParameter: the file cannot be written.
    """
    part = out.with_name(f"{out.name}.part")
    try:
        file = part.open("w", encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"cannot write {out}: {error.strerror}") from None
    try:
        with file:
            yield file
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def chat_row(preview: Preview) -> dict[str, Any]:
    """Return the row of `--form chat`: `prompt` and `tools` as OpenAI's Chat Completions API takes them."""
    prompt = openai_chat.messages(preview.prompt)["messages"]
    return {"prompt": prompt, "tools": openai_chat.tools(preview.tools)}


def nemo_gym_row(preview: Preview) -> dict[str, Any]:
    """Return the row of `--form nemo-gym`: `responses_create_params` as OpenAI's Responses API takes them."""
    params = openai_responses.messages(preview.prompt)
    return {"responses_create_params": params | {"tools": openai_responses.tools(preview.tools)}}


ROWS: Final[Mapping[FormName, Callable[[Preview], dict[str, Any]]]] = {"chat": chat_row, "nemo-gym": nemo_gym_row}
"""The functions that make a row, by the form's name."""
