"""`ludus calibrate`: measure how hard each task of a split is for a policy."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ludus.cli import playing, policies
from ludus.cli.app import ExitCode
from ludus.cli.calibration_tables import show
from ludus.cli.common import (
    TARGET_HELP,
    EnvironmentName,
    Json,
    Token,
    WireOption,
    client_of,
    errors,
    find_environment,
    is_local,
    print_json,
    run,
    shown,
)
from ludus.client import RemoteEnvironment, read_trajectories
from ludus.client.policies.base import policy_name
from ludus.client.summary import SUCCESS_TOLERANCE
from ludus.common.heap import settle_heap
from ludus.evaluation.calibration.difficulty import difficulty_of, write_difficulty
from ludus.evaluation.calibration.measure import Calibration, Origin, calibrate, origin_of
from ludus.evaluation.calibration.sampling import choose_tasks, wider
from ludus.evaluation.playing import play_cell, without_conversation
from ludus.evaluation.progress import ProgressBar
from ludus.protocol.difficulty import check_band
from ludus.protocol.episodes import EnvironmentInfo, Outcome
from ludus.protocol.errors import InvalidParams, NotFound
from ludus.protocol.trajectory import Trajectory, latest

COMMANDS: Final = {"calibrate": "Measure how hard tasks are for a policy."}

REPORTED: Final = 1000
"""The most outcomes that one report may hold."""


MaybeTarget = Annotated[
    str | None, typer.Argument(metavar="TARGET", help=f"{TARGET_HELP} May be left out with --from.")
]
Tasks = Annotated[
    int | None,
    typer.Option("-n", help="How many tasks, spread evenly over the split or drawn by --seed; all by default.", min=1),
]
UntilWidth = Annotated[
    float | None,
    typer.Option("--until-width", help="Go on with tasks whose interval is wider than this.", min=0.01, max=1.0),
]
Stored = Annotated[
    list[Path] | None,
    typer.Option("--from", help="Play nothing: take these trajectories (JSON lines). Repeatable.", dir_okay=False),
]
PolicyName = Annotated[
    str | None,
    typer.Option(
        "--policy",
        "-p",
        help="random (the default), oracle, a model (openai, openai-responses, anthropic, google), module:callable or "
        "file.py:callable; with --from, the name of whose trajectories to take.",
    ),
]
SuccessAt = Annotated[
    float | None,
    typer.Option("--success-at", help="Reward that counts as success; the environment's greatest, else 1, by default."),
]
By = Annotated[
    str | None,
    typer.Option(
        "--by",
        help="Group tasks by this public task field or reward component; by 'difficulty' or 'level' by default, "
        "else by quarters of the measured pass rate.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("calibrate")(calibrate_command)


def calibrate_command(
    target: MaybeTarget = None,
    environment: EnvironmentName = None,
    split: Annotated[str | None, typer.Option("--split", "-s", help="Split; the first one by default.")] = None,
    n: Tasks = None,
    samples: Annotated[int, typer.Option("--samples", help="Episodes per task.", min=1)] = 8,
    until_width: UntilWidth = None,
    max_samples: Annotated[int, typer.Option("--max-samples", help="Most episodes per task then.", min=1)] = 64,
    stored: Stored = None,
    policy: PolicyName = None,
    model: policies.Model = None,
    base_url: policies.BaseUrl = None,
    api_key: policies.ApiKey = None,
    temperature: policies.Temperature = None,
    max_tokens: policies.MaxTokens = None,
    option: policies.RequestOption = None,
    source: playing.Source = None,
    out: playing.Out = None,
    resume: playing.Resume = False,
    overwrite: playing.Overwrite = False,
    concurrency: playing.Concurrency = 16,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of tasks, episodes and a random policy.")] = None,
    retries: playing.Retries = 2,
    max_turns: playing.MaxTurns = 200,
    turn_seconds: playing.TurnSeconds = None,
    episode_seconds: playing.EpisodeSeconds = None,
    success_at: SuccessAt = None,
    band: Annotated[str, typer.Option(metavar="LOW,HIGH", help="Pass rates worth learning from.")] = "0.2,0.5",
    by: By = None,
    price_in: Annotated[float | None, typer.Option(help="Price of a million tokens read.", min=0)] = None,
    price_out: Annotated[float | None, typer.Option(help="Price of a million tokens written.", min=0)] = None,
    difficulty: Annotated[Path | None, typer.Option(help="Write the difficulty file here; replaces one.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Report the outcomes to the server's curriculum.")] = False,
    token: Token = None,
    wire: WireOption = "auto",
    keep_going: playing.KeepGoing = False,
    as_json: Json = False,
) -> None:
    """Measure how hard tasks are for a policy: pass rates with intervals, the share in a band, cost and length.

    Exits with 0 when every episode was scored, 1 when some were not, 5 when none was.
    """
    options = dict(locals()) | {"policy": policy or "random", "given_policy": policy}
    if target is not None and source is None:
        options["source"] = playing.source_of_target(target)
    _check(options)
    options["band"] = _edges(band)
    with playing.interruptible(out):
        found, wrong = run(_found(options))
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        show(found)
    playing.print_causes(found.summary, out or (stored[0] if stored else None), None)
    playing.print_out(out)
    if found.band is None:
        errors.print(shown("no episode was scored, so no pass rate can be measured"))
        raise typer.Exit(ExitCode.FAILED)
    if difficulty is not None:
        _write(difficulty, found)
    if wrong is not None:
        raise wrong
    if code := playing.exit_code(found.summary):
        raise typer.Exit(code)


async def _found(options: Mapping[str, Any]) -> tuple[Calibration, InvalidParams | None]:
    """Return the calibration, and the error of an invalid `--by`, so that it does not discard the played episodes."""
    target, split, stored = options["target"], options["split"], options["stored"]
    async with AsyncExitStack() as stack:
        client = info = None
        if target is not None:
            client = await stack.enter_async_context(client_of(target, options["token"], options["wire"]))
            info = find_environment(await client.environments(), options["environment"], target)
        remote = client.environment(info.name) if client and info else None
        if stored or remote is None or info is None:
            everything = _stored(stored or (), info, split, options["given_policy"])
        else:
            everything = await _play(remote, info, options, stack)
        threshold = playing.success_threshold(options["success_at"], info)
        figures = partial(calibrate, everything, success_at=threshold, band=options["band"], seed=options["seed"])
        priced = partial(figures, price_in=options["price_in"], price_out=options["price_out"])
        try:
            found, wrong = priced(by=options["by"]), None
        except InvalidParams as error:
            if options["by"] is None or stored:
                raise
            found, wrong = priced(), error
        if options["report"] and remote is not None:
            await _report(remote, found.split, everything, threshold)
        return found, wrong


def _check(options: Mapping[str, Any]) -> None:
    """Check the options before the first episode, so that an error in them does not waste the episodes."""
    target_name: str | None = options["target"]
    if target_name is None and not options["stored"]:
        raise typer.BadParameter("name an environment or a server's address, or --from a file of trajectories")
    if options["report"] and (target_name is None or is_local(target_name)):
        raise typer.BadParameter("--report needs a running server: name its address and the environment")
    if options["stored"] and options["out"] is not None:
        raise typer.BadParameter("--out cannot be combined with --from, which plays nothing")
    for name in ("success_at", "price_in", "price_out"):
        if options[name] is not None and not math.isfinite(options[name]):
            raise typer.BadParameter(f"--{name.replace('_', '-')} must be a finite number, not {options[name]}")
    if options["until_width"] is not None and options["max_samples"] < options["samples"]:
        raise typer.BadParameter(
            f"--max-samples {options['max_samples']} is less than --samples {options['samples']}: with --until-width "
            "it says how far a task may be played beyond them"
        )
    if (options["price_in"] is None) != (options["price_out"] is None):
        raise typer.BadParameter("--price-in and --price-out go together")
    playing.check_out(options["out"], options["resume"], options["overwrite"])
    if options["resume"] and options["stored"]:
        raise typer.BadParameter("--resume cannot be combined with --from, which plays nothing")
    target: Path | None = options["difficulty"]
    if target is not None and target.is_dir():
        raise typer.BadParameter(f"--difficulty {target} is a folder; give the name of a file")
    if target is not None and not os.access(target.absolute().parent, os.W_OK):
        raise typer.BadParameter(f"cannot write {target}: its folder does not exist, or you may not write to it")


def _edges(text: str) -> tuple[float, float]:
    low, comma, high = text.partition(",")
    try:
        if not comma:
            raise ValueError("it has one number")
        return check_band((float(low), float(high)))
    except ValueError:
        raise typer.BadParameter(
            f"--band {text!r} must be two pass rates between 0 and 1, the lower one first, such as 0.2,0.5"
        ) from None


async def _play(
    environment: RemoteEnvironment, info: EnvironmentInfo, options: Mapping[str, Any], stack: AsyncExitStack
) -> list[Trajectory]:
    """Play until every task has its samples, or with `until_width` until its interval is narrow enough."""
    out, resume, samples = options["out"], options["resume"], options["samples"]
    split = options["split"] or info.splits[0].name
    open_tasks = choose_tasks(info, split, options["n"], options["seed"])
    choice, harness = policies.PolicyChoice.of(options), playing.harness_of(options)
    policy = await stack.enter_async_context(choice.open())
    settle_heap()
    writer = stack.enter_context(playing.writer_of(out, options["overwrite"], resume=resume)) if out else None
    known = [without_conversation(one) for one in latest(read_trajectories(out))] if out and resume else []
    if known:
        _check_same(origin_of(known), Origin(info.name, info.version, split, policy_name(policy)), out)
    playing.check_policy(policy, info.name)
    done, played = set(writer.done if writer else ()), known
    bar = stack.enter_context(ProgressBar())
    threshold = playing.success_threshold(options["success_at"], info)
    if options["report"]:
        await environment.report_outcomes(split, ())  # fail before playing if the token may not report outcomes
    while True:
        new, stopped = await play_cell(
            environment, policy, split=split, tasks=open_tasks, samples=samples, seed=options["seed"],
            concurrency=options["concurrency"], retries=options["retries"], harness=harness, writer=writer, skip=done,
            stop_after_same_failure=None if options["keep_going"] else playing.SAME_ATTEMPTS, on_progress=bar,
        )  # fmt: skip
        done |= {one.key for one in new}
        played = latest([*played, *new])
        if stopped is not None:
            playing.print_stopped_early()
            return played
        if options["until_width"] is None or samples >= options["max_samples"]:
            return played
        wide = wider(played, options["until_width"], threshold)
        open_tasks = [index for index in open_tasks if index in wide]
        if not open_tasks:
            return played
        samples = min(samples + options["samples"], options["max_samples"])


def _check_same(held: Origin, wanted: Origin, out: Path) -> None:
    for name, before, now in zip(Origin._fields, held, wanted, strict=True):
        if before != now:
            raise typer.BadParameter(
                f"{out} holds trajectories of the {name} {before!r}, and these would be of {now!r}; use another --out"
            )


def _stored(
    files: Sequence[Path], info: EnvironmentInfo | None, split: str | None, policy: str | None
) -> list[Trajectory]:
    """Return the trajectories of files, only those of the given environment, split and policy."""
    found: list[Trajectory] = []
    for path in files:
        try:
            found += map(without_conversation, read_trajectories(path))
        except OSError as error:
            raise NotFound(f"{path} cannot be read: {error.strerror}") from None
    wanted = [
        one
        for one in found
        if (info is None or one.environment == info.name)
        and split in (None, one.split)
        and policy in (None, one.policy)
    ]
    origin_of(wanted)  # before `latest`, which would mistake one policy's episode for a second attempt of another's
    return latest(wanted)


async def _report(environment: RemoteEnvironment, split: str, played: Sequence[Trajectory], threshold: float) -> None:
    """Report the outcomes of the scored episodes to the server."""
    least = threshold - SUCCESS_TOLERANCE
    outcomes = [
        Outcome(task=one.task.id, reward=one.value, passed=one.value >= least)
        for one in played
        if one.value is not None
    ]
    for start in range(0, len(outcomes), REPORTED):
        await environment.report_outcomes(split, outcomes[start : start + REPORTED])
    errors.print(shown(f"reported {len(outcomes)} outcomes to the server's curriculum"))


def _write(path: Path, found: Calibration) -> None:
    try:
        write_difficulty(path, difficulty_of(found))
    except OSError as error:
        raise typer.BadParameter(f"cannot write {path}: {error.strerror}") from None
    errors.print(shown(f"wrote the difficulty of {len(found.tasks)} tasks to {path}"))
