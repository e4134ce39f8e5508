"""`ludus run`: play tasks of a split with a policy, and report the rewards."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated, Final

import typer
from rich.table import Table

from ludus.cli import _playing
from ludus.cli._common import (
    EnvironmentName,
    Token,
    Url,
    WireOption,
    client_of,
    console,
    find_environment,
    print_json,
    run,
    shown,
)
from ludus.client import Summary, read_trajectories, rollout, summarize
from ludus.evaluation.progress import ProgressBar
from ludus.protocol.errors import EveryAttemptFailed
from ludus.protocol.trajectory import latest

COMMANDS: Final = {"run": "Play tasks with a policy and report rewards."}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run_command)


def run_command(
    url: Url,
    environment: EnvironmentName,
    split: Annotated[str | None, typer.Option("--split", "-s", help="Split; the first one by default.")] = None,
    n: Annotated[int | None, typer.Option("-n", help="How many tasks; all by default.", min=1)] = None,
    samples: Annotated[int, typer.Option("--samples", help="Episodes per task.", min=1)] = 1,
    policy: _playing.PolicyName = "random",
    model: _playing.Model = None,
    base_url: _playing.BaseUrl = _playing.DEFAULT_BASE_URL,
    api_key: _playing.ApiKey = None,
    temperature: _playing.Temperature = None,
    max_tokens: _playing.MaxTokens = None,
    option: _playing.RequestOption = None,
    source: _playing.Source = None,
    out: _playing.Out = None,
    resume: _playing.Resume = False,
    overwrite: _playing.Overwrite = False,
    concurrency: _playing.Concurrency = 16,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the episodes and of a random policy.")] = None,
    retries: _playing.Retries = 2,
    max_turns: _playing.MaxTurns = 200,
    turn_seconds: _playing.TurnSeconds = None,
    episode_seconds: _playing.EpisodeSeconds = None,
    success_at: Annotated[
        float | None, typer.Option("--success-at", help="Reward that counts as success; the greatest one by default.")
    ] = None,
    token: Token = None,
    wire: WireOption = "channel",
    keep_going: _playing.KeepGoing = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Play tasks of a split with a policy and report rewards.

    Exits with 0 when every episode was scored, 1 when some were not, 5 when none was.
    """
    options = dict(locals())
    _playing.check_out(out, resume, overwrite)
    choice, harness = _playing.PolicyChoice.of(options), _playing.harness_of(options)

    async def go() -> tuple[Summary, EveryAttemptFailed | None]:
        async with AsyncExitStack() as stack:
            chosen = await stack.enter_async_context(choice.open())
            writer = stack.enter_context(_playing.writer_of(out, resume, overwrite)) if out else None
            client = await stack.enter_async_context(client_of(url, token, wire))
            info = find_environment(await client.environments(), environment)
            _playing.check_policy(chosen, info.name)
            bar = stack.enter_context(ProgressBar())
            stream = rollout(
                client.environment(info.name), chosen, split=split or info.splits[0].name, n=n, samples=samples,
                seed=seed, concurrency=concurrency, retries=retries, harness=harness,
                skip=writer.done if writer else (), on_progress=bar,
                stop_after_alike=None if keep_going else _playing.SAME_ATTEMPTS,
            )  # fmt: skip
            played, stopped = await _playing.collect(stream, writer)
            threshold = success_at if success_at is not None else (info.reward_range or (0.0, 1.0))[1]
            everything = latest(read_trajectories(out)) if out and resume else played
            return summarize(everything, success_at=threshold, reward_range=info.reward_range), stopped

    with _playing.interruptible(out):
        summary, stopped = run(go())
    if as_json:
        print_json(summary.model_dump(mode="json"))
    else:
        _print(summary, environment)
    _playing.print_causes(summary, out, stopped)
    _playing.print_out(out)
    if code := _playing.exit_code(summary):
        raise typer.Exit(code)


def _print(summary: Summary, environment: str) -> None:
    table = Table("measure", "value", title=shown(environment))
    for name, value in _rows(summary):
        table.add_row(shown(name), shown(value))
    console.print(table)


def _rows(summary: Summary) -> list[tuple[str, str]]:
    interval = _playing.interval_text
    rows = [("episodes", f"{summary.episodes} ({summary.scored} scored)")]
    if summary.mean is not None:
        rows.append(("mean reward", f"{summary.mean:.4f}" + interval(summary.interval)))
        rows.append(("standard deviation", "–" if summary.std is None else f"{summary.std:.4f}"))
    if summary.success is not None:
        told = f"{summary.success:.1%}" + interval(summary.success_interval, percent=True)
        rows.append((f"success (reward ≥ {summary.success_at:g})", told))
    for name, part in summary.components.items():
        weight = "weights differ" if part.weight is None else f"weight {part.weight:g}"
        rows.append((f"component {name}", f"{part.mean:.4f}  ({weight}; in {part.count} of {summary.scored} episodes)"))
    rows += [(f"ended: {reason}", str(count)) for reason, count in summary.end_reasons.items()]
    rows += [(f"failed: {kind}", str(count)) for kind, count in summary.failed.items()]
    if summary.unscored:
        rows.append(("unscored", str(summary.unscored)))
    if summary.steps is not None:
        rows.append(("steps per episode", f"{summary.steps:.1f}"))
    rows += [(f"steps with noise: {kind}", str(count)) for kind, count in sorted(summary.noise.items())]
    if summary.retried:
        rows.append(("needed more than one attempt", str(summary.retried)))
    if summary.usage is not None:
        rows.append(("tokens in / out", f"{summary.usage.input_tokens} / {summary.usage.output_tokens}"))
    rows.append(("seconds", f"{summary.seconds:.1f}"))
    return rows
