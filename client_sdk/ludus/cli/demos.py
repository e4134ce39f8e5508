"""`ludus demos`: record episodes that a policy can learn from."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

from ludus.cli import _playing, _policies
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
from ludus.client import rollout
from ludus.evaluation import ProgressBar
from ludus.evaluation.playing import collect
from ludus.protocol.errors import EveryAttemptFailed
from ludus.protocol.heap import settle_heap
from ludus.protocol.trajectory import Trajectory

COMMANDS: Final = {"demos": "Record demonstrations for `ludus train`, by the oracle or another policy."}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demos", help=COMMANDS["demos"])(demos)


def demos(
    target: TargetName,
    environment: EnvironmentName = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the demonstrations.")] = Path("games.jsonl"),
    split: Annotated[str | None, typer.Option("--split", "-s", help="Split; the first one by default.")] = None,
    n: Annotated[int, typer.Option("-n", help="How many tasks, at most.", min=1)] = 500,
    samples: Annotated[int, typer.Option("--samples", help="Episodes per task.", min=1)] = 1,
    policy: _policies.PolicyName = "oracle",
    model: _policies.Model = None,
    base_url: _policies.BaseUrl = None,
    api_key: _policies.ApiKey = None,
    temperature: _policies.Temperature = None,
    max_tokens: _policies.MaxTokens = None,
    option: _policies.RequestOption = None,
    source: _playing.Source = None,
    reward: Annotated[
        float | None,
        typer.Option("--reward", help="Keep only episodes with at least this reward; all scored ones by default."),
    ] = None,
    overwrite: _playing.Overwrite = False,
    concurrency: _playing.Concurrency = 16,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the episodes and of a random policy.")] = None,
    max_turns: _playing.MaxTurns = 200,
    token: Token = None,
) -> None:
    """Record demonstrations for `ludus train`: episodes of the environment's oracle, or good ones of another policy.

    Demonstrations must sometimes win: exits with 1 when no kept episode earned more than 0, and with 5 when no episode
    was scored.

    [bold]ludus demos my_env.py:MyEnv --out games.jsonl[/bold]
    [bold]ludus demos my_env.py:MyEnv --policy random --samples 20 --reward 1[/bold]
    """
    options = dict(locals()) | {"source": source or _playing.source_of_target(target)}
    options |= {"turn_seconds": None, "episode_seconds": None}
    choice, harness = _policies.PolicyChoice.of(options), _playing.harness_of(options)

    def good(trajectory: Trajectory) -> bool:
        value = trajectory.value
        return value is not None and (reward is None or value >= reward)

    async def go() -> tuple[list[Trajectory], EveryAttemptFailed | None]:
        async with AsyncExitStack() as stack:
            chosen = await stack.enter_async_context(choice.open())
            settle_heap()
            writer = stack.enter_context(_playing.writer_of(out, overwrite))
            client = await stack.enter_async_context(client_of(target, token, "auto"))
            info = find_environment(await client.environments(), environment, target)
            _playing.check_policy(chosen, info.name)
            bar = stack.enter_context(ProgressBar())
            stream = rollout(
                client.environment(info.name), chosen, split=split or info.splits[0].name, n=n, samples=samples,
                seed=seed, concurrency=concurrency, harness=harness, on_progress=bar,
                stop_after_same_failure=_playing.SAME_ATTEMPTS,
            )  # fmt: skip
            return await collect(stream, writer, good)

    with _playing.interruptible(out, resumable=False):
        played, stopped = run(go())
    if stopped is not None:
        raise stopped
    kept = [trajectory for trajectory in played if good(trajectory)]
    wins = sum((trajectory.value or 0.0) > 0 for trajectory in kept)
    console.print(
        shown(f"{out}: {len(kept)} of {len(played)} episodes kept, {wins} with a reward above 0"), soft_wrap=True
    )
    if not wins:
        console.print(
            shown(
                "Demonstrations must sometimes win, because training learns from differences. Use the environment's "
                "oracle, a better policy, more --samples, or easier tasks."
            )
        )
        raise typer.Exit(1)
    where = f"--serve {target}" if is_local(target) else f"--environments.0.url={target}"
    console.print(shown(f"To train on them: ludus train --tiny-from {out} {where}"), soft_wrap=True)
