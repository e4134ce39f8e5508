"""`ludus eval match`: matches against other accounts on a hub."""

from __future__ import annotations

from typing import Annotated

import typer

from ludus.cli import _playing, _policies
from ludus.cli._app import ExitCode
from ludus.cli._common import Json, console, errors, parse_pairs, print_json, run, shown
from ludus.cli._hub import DEFAULT, HubAddress, HubToken, connect_as
from ludus.cli.evaluation_hub import (
    Published,
    check_model,
    declared_of,
    environment_of,
    failure_text,
    policy_of,
    spec_of,
    version_of,
)
from ludus.client import Harness, TrajectoryWriter
from ludus.evaluation.config import ModelSpec
from ludus.registry.match_play import CONCURRENCY, PlayedMatch, play_matches
from ludus.registry.matches import MatchesClient
from ludus.registry.types.matches import MATCHES, EntrantInfo, EntrantParams
from ludus.registry.types.packages import VersionInfo


def match(
    package: Published,
    model: Annotated[
        str, typer.Option("--model", "-m", help="WIRE:NAME, WIRE:NAME@URL, random or file.py:callable.")
    ],
    env: Annotated[str | None, typer.Option("--env", "-e", help="Environment, for a package with several.")] = None,
    split: Annotated[str, typer.Option("--split", "-s", help="Split.")] = "test",
    matches: Annotated[int, typer.Option("--matches", "-n", min=1, max=MATCHES, help="How many matches to play.")] = 20,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="ENTRANT", help="Go on with an entrant; its name is in its URL.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the model on the board.")] = None,
    harness_name: Annotated[
        str | None, typer.Option("--harness", help="Name of the harness on the board; ludus eval by default.")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", help="Environment variable with the key of the model.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=JSON", help="Further field of each request.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Matches at once.")] = CONCURRENCY,
    patience: Annotated[
        float, typer.Option("--patience", min=1, help="Stop after so many seconds without an opponent.")
    ] = 3600.0,
    max_turns: _playing.MaxTurns = 200,
    turn_seconds: _playing.TurnSeconds = None,
    episode_seconds: _playing.EpisodeSeconds = None,
    out: _playing.Out = None,
    overwrite: _playing.Overwrite = False,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Play matches against the entrants of other accounts, in an environment with two seats.

    The hub finds the opponents, draws seats and tasks, starts the matches and reads the rewards. All matches count.
    A match that you leave is lost.

    [bold]ludus eval match alice/connect-four@1.0.0 --model openai:gpt-5 --matches 20[/bold]
    """
    given = parse_pairs("--option", option or (), "NAME=JSON")
    spec = spec_of(model, name, api_key_env, {key: _policies.json_or_text(text) for key, text in given.items()})
    limits = Harness(max_turns=max_turns, turn_seconds=turn_seconds, episode_seconds=episode_seconds)
    writer = _playing.writer_of(out, overwrite) if out is not None else None
    params = (env, split, matches)
    with _playing.interruptible(out, resumable=False):
        entrant = run(
            _match(package, spec, harness_name, params, resume, limits, concurrency, patience, writer, hub, token)
        )
    if as_json:
        print_json(entrant.model_dump(mode="json", by_alias=True))
    else:
        _print(entrant, hub)
    _playing.print_out(out)
    if entrant.state == "open":
        raise typer.Exit(ExitCode.UNSUCCESSFUL)


async def _match(
    package: str, spec: ModelSpec, harness: str | None, params: tuple[str | None, str, int], resume: str | None,
    limits: Harness, concurrency: int, patience: float, writer: TrajectoryWriter | None, hub: str, token: str | None,
) -> EntrantInfo:  # fmt: skip
    def report(played: PlayedMatch) -> None:
        result = played.end.result or (
            "void, and given again" if played.end.state == "void" else "the other side plays"
        )
        line = f"match {played.ticket.match} ({played.ticket.seat}): {result}{failure_text(played.trajectory)}"
        errors.print(shown(line, "dim"), soft_wrap=True)

    def report_wait(left: int) -> None:
        errors.print(shown(f"no opponent yet, {left} matches left", "dim"))

    async with connect_as(MatchesClient, hub, token) as client, policy_of(spec) as policy:
        if resume is not None:
            entrant = await client.entrant(resume)
        else:
            info = await version_of(client, package)
            await check_model(policy, spec, info, params[0])
            entrant = await _register(client, info, spec, harness, params)
            where = f"registered for {entrant.registered} matches: {hub.rstrip('/')}/entrants/{entrant.key}"
            errors.print(shown(where), soft_wrap=True)
            errors.print(shown(f"after an interruption, go on with --resume {entrant.key}", "dim"), soft_wrap=True)
        return await play_matches(
            client, entrant, policy, concurrency=concurrency, patience=patience, harness=limits, writer=writer,
            on_match=report, on_wait=report_wait,
        )  # fmt: skip


async def _register(
    client: MatchesClient, info: VersionInfo, spec: ModelSpec, harness: str | None, params: tuple[str | None, str, int]
) -> EntrantInfo:
    env, split, matches = params
    request = EntrantParams(
        environment=environment_of(info, env), split=split, matches=matches, declared=declared_of(spec, harness)
    )
    return await client.register(info.id, info.version, request)


def _print(entrant: EntrantInfo, hub: str) -> None:
    counts = f"{entrant.wins} wins, {entrant.draws} draws, {entrant.losses} losses"
    rating = entrant.rating
    if rating is not None:
        text = f"rating {rating.value:.0f} (95% from {rating.low:.0f} to {rating.high:.0f})"
        console.print(shown(text, "bold"))
    console.print(shown(f"  {counts} in {entrant.matches} of {entrant.registered} matches"), soft_wrap=True)
    if entrant.state == "open":
        console.print(shown("  the entrant is open; go on with --resume"), soft_wrap=True)
    console.print(shown(f"  {hub.rstrip('/')}/entrants/{entrant.key}"), soft_wrap=True)
