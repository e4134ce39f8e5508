"""`ludus eval verify`: verified runs, which a hub plays itself."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Final

import typer

from ludus.cli import _policies
from ludus.cli._app import ExitCode
from ludus.cli._common import Json, errors, parse_pairs, print_json, run, shown
from ludus.cli._hub import DEFAULT, HubAddress, HubToken, connect_as
from ludus.cli.evaluation_hub import Published, environment_of, print_run, version_of
from ludus.evaluation.config import DEFAULT_URLS, KEY_VARIABLES
from ludus.registry.results import ResultsClient
from ludus.registry.types.results import RunInfo
from ludus.registry.types.verified import OWN_HARNESS, VerifiedParams

LOOK_SECONDS: Final = 2.0
"""The time between two looks at a run."""


def verify(
    package: Published,
    model: Annotated[str, typer.Option("--model", "-m", help="Name of the model at its endpoint, as openai:NAME.")],
    base_url: Annotated[
        str, typer.Option("--base-url", metavar="URL", help="OpenAI-compatible endpoint, which the hub calls.")
    ] = DEFAULT_URLS["openai"],
    harness: Annotated[
        str, typer.Option("--harness", help="ludus, or a published one: OWNER/NAME@VERSION[#ENTRY].")
    ] = OWN_HARNESS,
    env: Annotated[str | None, typer.Option("--env", "-e", help="Environment, for a package with several.")] = None,
    split: Annotated[str, typer.Option("--split", "-s", help="Split.")] = "test",
    tasks: Annotated[int, typer.Option("--tasks", "-n", min=1, help="How many tasks the hub draws.")] = 20,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Episodes per task.")] = 1,
    api_key_env: Annotated[
        str, typer.Option("--api-key-env", help="Environment variable with the key, which is sent to the hub.")
    ] = KEY_VARIABLES["openai"],
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=JSON", help="Field that the hub sets in each call.")
    ] = None,
    most_tokens: Annotated[
        int | None, typer.Option("--most-tokens", min=1, help="Tokens of all calls, after which the hub makes none.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when the run is registered.")] = False,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Let a hub run a harness with your model: it runs the harness by its digest, in a sandbox without a network.

    The key of your endpoint is sent to the hub, which adds it to each call, never shows it, and deletes it when the
    run ends. An interruption of this command does not end the run.

    [bold]ludus eval verify alice/words@1.0.0 --split test --model openai:gpt-5 --tasks 50[/bold]
    """
    name = model.removeprefix("openai:")
    if ":" in model and name == model:
        raise typer.BadParameter("verified runs call endpoints for chat completions only: --model openai:NAME")
    given = parse_pairs("--option", option or (), "NAME=JSON")
    fields: dict[str, object] = {
        "split": split, "tasks": tasks, "samples": samples, "harness": harness, "model": name, "base_url": base_url,
        "api_key": os.environ.get(api_key_env, ""), "most_tokens": most_tokens,
        "options": {key: _policies.json_or_text(text) for key, text in given.items()},
    }  # fmt: skip
    done = run(_verify(package, env, fields, hub, token, detach=detach))
    if as_json:
        print_json(done.model_dump(mode="json", by_alias=True))
    elif not detach:
        print_run(done, hub)
    if not detach and (done.figures is None or done.figures.unscored):
        raise typer.Exit(ExitCode.UNSUCCESSFUL)


async def _verify(
    package: str, env: str | None, fields: dict[str, object], hub: str, token: str | None, *, detach: bool
) -> RunInfo:
    async with connect_as(ResultsClient, hub, token) as client:
        info = await version_of(client, package)
        params = VerifiedParams.model_validate({"environment": environment_of(info, env), **fields})
        started = await client.register_verified(info.id, info.version, params)
        where = hub.rstrip("/")
        many = f"{started.tasks} tasks × {started.samples}"
        errors.print(shown(f"registered: {where}/runs/{started.key} ({many}, run {started.number} of {started.of} of "
                           f"{started.by} on this board)"), soft_wrap=True)  # fmt: skip
        board = f"{where}/{started.package}/versions/{started.version}/board"
        query = f"environment={started.environment}&split={started.split}&level=verified"
        errors.print(shown(f"board: {board}?{query}", "dim"), soft_wrap=True)
        found = started
        while not detach and found.state == "open":
            await asyncio.sleep(LOOK_SECONDS)
            found = await client.run(started.key)
        return found
