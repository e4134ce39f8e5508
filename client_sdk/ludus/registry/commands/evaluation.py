"""`ludus eval play` and `ludus eval submit`: results on the boards of a hub."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from ludus.cli import playing, policies
from ludus.cli.app import ExitCode
from ludus.cli.common import Json, console, errors, parse_pairs, print_json, run, shown
from ludus.cli.hub_options import DEFAULT, HubAddress, HubToken
from ludus.client import Harness, Policy, TrajectoryWriter
from ludus.common.distribution import installed_version
from ludus.evaluation.config import ModelSpec, parse_config
from ludus.evaluation.folder import read_results
from ludus.evaluation.models import open_model, probe_model
from ludus.protocol.errors import InvalidParams, LudusError
from ludus.protocol.evaluation import EvaluationResults
from ludus.protocol.trajectory import Trajectory
from ludus.registry.client import RegistryClient
from ludus.registry.commands.connecting import connect_as
from ludus.registry.played_runs import CONCURRENCY, PlayedEpisode, play_run
from ludus.registry.results import ResultsClient
from ludus.registry.submission import described, submissions_of
from ludus.registry.types.packages import VersionInfo
from ludus.registry.types.results import Declared, RunInfo, RunParams

Published = Annotated[
    str, typer.Argument(metavar="OWNER/NAME[@VERSION]", help="Package on the hub; its newest version by default.")
]
Target = Annotated[str, typer.Option("--to", metavar="OWNER/NAME@VERSION", help="Version that was evaluated.")]


def register(app: typer.Typer) -> None:
    """Add the subcommands to `ludus eval`."""
    app.command("play")(play)
    app.command("submit")(submit)


def submit(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder or results.json of an evaluation.")],
    to: Target,
    model: Annotated[list[str] | None, typer.Option("--model", "-m", help="Model to upload; all by default.")] = None,
    with_rollouts: Annotated[
        bool, typer.Option("--with-rollouts", help="Upload the conversations too, for all to see.")
    ] = False,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
    as_json: Json = False,
) -> None:
    """Upload the results of an evaluation to the board of a published version, as reported results.

    [bold]ludus eval submit evaluation --to alice/words@1.0.0[/bold]
    """
    base = folder if folder.is_dir() else folder.parent
    found = run(upload(read_results(folder), base, to, model or (), hub, token, with_rollouts=with_rollouts))
    if as_json:
        print_json([one.model_dump(mode="json", by_alias=True) for one in found])


def published(to: str) -> tuple[str, str]:
    """Return the package and the version of `OWNER/NAME@VERSION`.

    Raises:
        BadParameter: it names no version.
    """
    package, _, version = to.partition("@")
    if not version:
        raise typer.BadParameter(f"name the version that was evaluated: {package}@VERSION")
    return package, version


async def upload(
    results: EvaluationResults, folder: Path, to: str, models: Sequence[str], hub: str, token: str | None, *,
    with_rollouts: bool = False,
) -> list[RunInfo]:  # fmt: skip
    """Upload an evaluation, say before what is uploaded, and print where it is shown.

    Raises:
        BadParameter: `to` names no version.
        InvalidParams: there is nothing to upload, or the evaluation is not complete.
        LudusError: the hub refuses it.
    """
    package, version = published(to)
    found = []
    async with connect_as(ResultsClient, hub, token) as client:
        info = await client.version(package, version)
        chosen = submissions_of(results, info, models)
        for submission in chosen:
            for line in described(submission, info, hub, with_rollouts=with_rollouts):
                errors.print(shown(line), soft_wrap=True)
        for submission in chosen:
            done = await client.submit(info.id, info.version, submission)
            if with_rollouts:
                cells = {(cell.model[:200], cell.environment, cell.split): cell for cell in results.cells}
                cell = cells[submission.declared.model, submission.environment, submission.split]
                done = await client.upload_rollouts(done.key, folder / Path(cell.trajectories).name)
            found.append(done)
            errors.print(shown(f"reported: {hub.rstrip('/')}/runs/{done.key} (run {done.number} of {done.of})"),
                         soft_wrap=True)  # fmt: skip
    return found


def play(
    package: Published,
    model: Annotated[
        str, typer.Option("--model", "-m", help="WIRE:NAME, WIRE:NAME@URL, random or file.py:callable.")
    ],
    env: Annotated[str | None, typer.Option("--env", "-e", help="Environment, for a package with several.")] = None,
    split: Annotated[str, typer.Option("--split", "-s", help="Split.")] = "test",
    tasks: Annotated[int, typer.Option("--tasks", "-n", min=1, help="How many tasks the hub draws.")] = 20,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Episodes per task.")] = 1,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="RUN", help="Go on with an open run; its name is in its URL.")
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
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Episodes at once.")] = CONCURRENCY,
    max_turns: playing.MaxTurns = 200,
    turn_seconds: playing.TurnSeconds = None,
    episode_seconds: playing.EpisodeSeconds = None,
    out: playing.Out = None,
    overwrite: playing.Overwrite = False,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Play a run on a hub, which draws the tasks, starts the episodes and reads the rewards itself.

    The run is registered before it starts and counts on the board however it ends. What is not played until its
    deadline counts with the lowest reward. So the model is called once before, and playing stops when episodes in a row
    fail on your side.

    [bold]ludus eval play alice/words@1.0.0 --split test --model openai:gpt-5 --tasks 50[/bold]
    """
    given = parse_pairs("--option", option or (), "NAME=JSON")
    spec = spec_of(model, name, api_key_env, {key: policies.json_or_text(text) for key, text in given.items()})
    limits = Harness(max_turns=max_turns, turn_seconds=turn_seconds, episode_seconds=episode_seconds)
    writer = playing.writer_of(out, overwrite) if out is not None else None
    params = (env, split, tasks, samples)
    with playing.interruptible(out, resumable=False):
        ended = run(_play(package, spec, harness_name, params, resume, limits, concurrency, writer, hub, token))
    if as_json:
        print_json(ended.model_dump(mode="json", by_alias=True))
    else:
        print_run(ended, hub)
    playing.print_out(out)
    if ended.figures is None or ended.figures.unscored:
        raise typer.Exit(ExitCode.UNSUCCESSFUL)


async def _play(
    package: str, spec: ModelSpec, harness: str | None, params: tuple[str | None, str, int, int], resume: str | None,
    limits: Harness, concurrency: int, writer: TrajectoryWriter | None, hub: str, token: str | None,
) -> RunInfo:  # fmt: skip
    def report(played: PlayedEpisode) -> None:
        end = played.end or "broke, and is started again"
        errors.print(shown(f"episode {played.place}: {end}{failure_text(played.trajectory)}", "dim"), soft_wrap=True)

    async with connect_as(ResultsClient, hub, token) as client, policy_of(spec) as policy:
        if resume is not None:
            started = await client.run(resume)
        else:
            info = await version_of(client, package)
            await check_model(policy, spec, info, params[0])
            started = await _register(client, info, spec, harness, params)
            again = f"after an interruption, go on with --resume {started.key}"
            many = f"{started.tasks} tasks × {started.samples}"
            errors.print(shown(f"registered: {hub.rstrip('/')}/runs/{started.key} ({many}, run {started.number} of "
                               f"{started.of} of {started.by} on this board)"), soft_wrap=True)  # fmt: skip
            errors.print(shown(again, "dim"), soft_wrap=True)
        return await play_run(
            client, started, policy, concurrency=concurrency, harness=limits, writer=writer, on_episode=report
        )


@asynccontextmanager
async def policy_of(spec: ModelSpec) -> AsyncIterator[Policy]:
    """Yield the policy of a model.

    Raises:
        BadParameter: it is the oracle, which needs what the hub keeps.
    """
    if spec.wire is not None:
        async with open_model(spec) as model:
            yield model
        return
    if spec.model == "oracle":
        raise typer.BadParameter("the oracle needs the task, which the hub keeps; choose another --model")
    async with policies.PolicyChoice(spec.model, {}, None, 0).open() as policy:
        yield policy


async def check_model(policy: Policy, spec: ModelSpec, info: VersionInfo, env: str | None) -> None:
    """Call the endpoint of a model once, before anything that counts is registered.

    Raises:
        InvalidParams: the version has several environments, and none is named.
        LudusError: the endpoint fails.
    """
    name = environment_of(info, env)
    tools = next((entry.tools for entry in info.manifest.environments if entry.name == name), ())
    if spec.wire is None:
        return
    try:
        await probe_model(policy, tools)
    except LudusError:
        errors.print(shown("nothing was registered, because a first call of the model failed:"), soft_wrap=True)
        raise


def failure_text(trajectory: Trajectory) -> str:
    """Return what broke on this side in an episode, to be appended to its end; empty if nothing did."""
    failure = trajectory.failure
    return f", because of a failure on this side: {failure.error}: {failure.message}" if failure is not None else ""


async def _register(
    client: ResultsClient, info: VersionInfo, spec: ModelSpec, harness: str | None,
    params: tuple[str | None, str, int, int],
) -> RunInfo:  # fmt: skip
    env, split, tasks, samples = params
    request = RunParams(
        environment=environment_of(info, env), split=split, tasks=tasks, samples=samples,
        declared=declared_of(spec, harness),
    )  # fmt: skip
    return await client.register(info.id, info.version, request)


async def version_of(client: RegistryClient, package: str) -> VersionInfo:
    """Return a version of a package on the hub that is named as `OWNER/NAME[@VERSION]`."""
    name, _, version = package.partition("@")
    return await client.version(name, version or None)


def declared_of(spec: ModelSpec, harness: str | None) -> Declared:
    """Return what a board says about who plays: a model, and a harness, which is `ludus eval` if none is named."""
    return Declared(
        model=spec.label[:200], harness=harness or f"ludus eval {installed_version()}", options=spec.options,
        price_in=spec.price_in, price_out=spec.price_out,
    )  # fmt: skip


def environment_of(info: VersionInfo, name: str | None) -> str:
    """Return the name of an environment of a version; the only one if none is given.

    Raises:
        InvalidParams: the version has several.
    """
    names = [entry.name for entry in info.manifest.environments]
    if name is None and len(names) != 1:
        raise InvalidParams(f"{info.id} has several environments, name one with --env: {', '.join(names)}")
    return name if name is not None else names[0]


def spec_of(model: str, name: str | None, api_key_env: str | None, options: dict[str, object]) -> ModelSpec:
    """Return the model that a command's options describe.

    Raises:
        BadParameter: they are not valid.
    """
    fields = {"model": model, "name": name, "api_key_env": api_key_env, "options": options}
    table = {key: value for key, value in fields.items() if value}
    try:
        return parse_config({"models": [table], "environments": [{"target": "hub"}]}, "the options").models[0]
    except InvalidParams as error:
        raise typer.BadParameter(error.message) from None


def print_run(ended: RunInfo, hub: str) -> None:
    """Print what an ended run has earned."""
    figures = ended.figures
    if figures is None:
        console.print(shown(f"the run {ended.key} is still open"))
        return
    interval = playing.interval_text(figures.mean.interval)
    console.print(shown(f"mean {figures.mean.value:.4f}{interval} over {figures.mean.tasks} tasks", "bold"))
    console.print(shown("  " + ", ".join(f"{count} {end}" for end, count in figures.ends.items())), soft_wrap=True)
    if figures.unscored:
        text = f"{figures.unscored} episodes have no reward of their own and count with the lowest one"
        console.print(shown(f"  {text}"), soft_wrap=True)
    console.print(shown(f"  {hub.rstrip('/')}/runs/{ended.key}"), soft_wrap=True)
