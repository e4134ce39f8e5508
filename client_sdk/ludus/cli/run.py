"""`ludus run`: play tasks of a split with a policy, and report the rewards."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated, Final

import typer

from ludus.cli import playing, policies
from ludus.cli.common import (
    EnvironmentName,
    TargetName,
    Token,
    WireOption,
    client_of,
    find_environment,
    print_json,
    run,
)
from ludus.cli.run_tables import Results, results_of, show
from ludus.client import read_trajectories
from ludus.common.heap import settle_heap
from ludus.evaluation.playing import play_cell, without_conversation
from ludus.evaluation.progress import ProgressBar
from ludus.protocol.errors import EveryAttemptFailed

COMMANDS: Final = {"run": "Play tasks with a policy and report rewards."}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run_command)


def run_command(
    target: TargetName,
    environment: EnvironmentName = None,
    split: Annotated[str | None, typer.Option("--split", "-s", help="Split; the first one by default.")] = None,
    n: Annotated[int | None, typer.Option("-n", help="How many tasks; all by default.", min=1)] = None,
    samples: Annotated[int, typer.Option("--samples", help="Episodes per task.", min=1)] = 1,
    policy: policies.PolicyName = "random",
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
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the episodes and of a random policy.")] = None,
    retries: playing.Retries = 2,
    max_turns: playing.MaxTurns = 200,
    turn_seconds: playing.TurnSeconds = None,
    episode_seconds: playing.EpisodeSeconds = None,
    success_at: Annotated[
        float | None, typer.Option("--success-at", help="Reward that counts as success; the greatest one by default.")
    ] = None,
    token: Token = None,
    wire: WireOption = "auto",
    keep_going: playing.KeepGoing = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Play tasks of a split with a policy and report rewards.

    Exits with 0 when every episode was scored, 1 when some were not, 5 when none was.
    """
    options = dict(locals()) | {"source": source or playing.source_of_target(target)}
    playing.check_out(out, resume, overwrite)
    choice, harness = policies.PolicyChoice.of(options), playing.harness_of(options)

    async def go() -> tuple[Results, EveryAttemptFailed | None]:
        async with AsyncExitStack() as stack:
            chosen = await stack.enter_async_context(choice.open())
            settle_heap()
            writer = stack.enter_context(playing.writer_of(out, overwrite, resume=resume)) if out else None
            client = await stack.enter_async_context(client_of(target, token, wire))
            info = find_environment(await client.environments(), environment, target)
            playing.check_policy(chosen, info.name)
            bar = stack.enter_context(ProgressBar())
            split_name = split or info.splits[0].name
            recorded, stopped = await play_cell(
                client.environment(info.name), chosen, split=split_name, n=n, samples=samples, seed=seed,
                concurrency=concurrency, retries=retries, harness=harness, writer=writer, on_progress=bar,
                stop_after_same_failure=None if keep_going else playing.SAME_ATTEMPTS,
            )  # fmt: skip
            if out and resume:
                recorded = [without_conversation(read_trajectory) for read_trajectory in read_trajectories(out)]
            threshold = playing.success_threshold(success_at, info)
            return results_of(info.name, split_name, recorded, threshold, info.reward_range), stopped

    with playing.interruptible(out):
        results, stopped = run(go())
    if as_json:
        print_json(results.as_json())
    else:
        show(results, out)
    playing.print_causes(results.summary, out, stopped)
    playing.print_out(out)
    if code := playing.exit_code(results.summary):
        raise typer.Exit(code)
