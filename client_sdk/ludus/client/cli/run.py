"""`ludus run`: play tasks of a split with a policy, and report what came of it."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from ludus.client.cli._app import ExitCode
from ludus.client.cli._common import (
    EnvironmentName,
    Token,
    Url,
    WireOption,
    client_of,
    console,
    errors,
    find_environment,
    print_json,
    run,
    shown,
)
from ludus.client.loading import load_object
from ludus.client.policies import OraclePolicy, Policy, RandomPolicy
from ludus.client.progress import ProgressBar
from ludus.client.rollout import Harness, rollout
from ludus.client.summary import Summary, summarize
from ludus.client.trajectory import Trajectory, TrajectoryWriter, latest, read_trajectories

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
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="random, oracle, openai, module:callable or file.py:callable.")
    ] = "random",
    model: Annotated[str | None, typer.Option("--model", "-m", help="Model, for openai.")] = None,
    base_url: Annotated[
        str, typer.Option("--base-url", envvar="OPENAI_BASE_URL", help="Endpoint up to and with /v1, for openai.")
    ] = "https://api.openai.com/v1",
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="OPENAI_API_KEY", show_default=False, help="Key, for openai.")
    ] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", help="For openai.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Per turn, for openai.", min=1)] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=JSON", help="Further field of each request, for openai; repeatable."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", help="The environment's class (module:Class or file.py:Class), for oracle."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the trajectories (JSON lines).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Play only what --out does not hold yet.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin --out anew.")] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="Episodes at once.", min=1)] = 16,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the episodes and of a random policy.")] = None,
    retries: Annotated[int, typer.Option("--retries", help="Further attempts after infrastructure failures.")] = 2,
    max_turns: Annotated[int, typer.Option("--max-turns", help="Turns of the policy in an episode.", min=1)] = 200,
    turn_seconds: Annotated[float | None, typer.Option("--turn-seconds", help="Limit of one turn.")] = None,
    episode_seconds: Annotated[float | None, typer.Option("--episode-seconds", help="Limit of one episode.")] = None,
    success_at: Annotated[
        float | None, typer.Option("--success-at", help="Reward that counts as success; the greatest one by default.")
    ] = None,
    token: Token = None,
    wire: WireOption = "channel",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Play tasks of a split with a policy and report rewards.

    Exits with 0 when every episode was scored, 1 when some failed, 5 when all did.
    """
    if (resume or overwrite) and out is None:
        raise typer.BadParameter("--resume and --overwrite need --out")
    if policy == "openai" and not model:
        raise typer.BadParameter("--policy openai needs --model")
    options = {"temperature": temperature, "max_tokens": max_tokens, **_options(option or [])}
    endpoint = {"model": model, "base_url": base_url, "api_key": api_key, "options": _given(options)}
    harness = Harness(max_turns=max_turns, turn_seconds=turn_seconds, episode_seconds=episode_seconds)

    async def go() -> Summary:
        async with AsyncExitStack() as stack:
            chosen = await stack.enter_async_context(_policy(policy, endpoint, source, seed or 0))
            writer = stack.enter_context(_writer(out, resume, overwrite)) if out else None
            client = await stack.enter_async_context(client_of(url, token, wire))
            info = find_environment(await client.environments(), environment)
            bar = stack.enter_context(ProgressBar())
            stream = rollout(
                client.environment(info.name), chosen, split=split or info.splits[0].name, n=n, samples=samples,
                seed=seed, concurrency=concurrency, retries=retries, harness=harness,
                skip=writer.done if writer else (), on_progress=bar,
            )  # fmt: skip
            played = await _collect(stream, writer)
            threshold = success_at if success_at is not None else (info.reward_range or (0.0, 1.0))[1]
            everything = latest(read_trajectories(out)) if out and resume else played
            return summarize(everything, success_at=threshold)

    summary = run(go())
    if as_json:
        print_json(summary.model_dump(mode="json"))
    else:
        _print(summary, environment)
    if summary.failed:
        raise typer.Exit(ExitCode.UNSUCCESSFUL if summary.scored else ExitCode.FAILED)


async def _collect(stream: Any, writer: TrajectoryWriter | None) -> list[Trajectory]:
    """Write each trajectory out; keep only what the summary needs of it."""
    kept: list[Trajectory] = []
    async with aclosing(stream):
        async for trajectory in stream:
            if writer is not None:
                writer.write(trajectory)
            kept.append(trajectory.model_copy(update={"items": (), "tools": ()}))
    return kept


@asynccontextmanager
async def _policy(name: str, endpoint: dict[str, Any], source: str | None, seed: int) -> AsyncIterator[Policy]:
    if name == "random":
        yield RandomPolicy(seed)
    elif name == "oracle":
        yield OraclePolicy(source)
    elif name == "openai":
        from ludus.client.policies.openai import OpenAIPolicy  # httpx takes longer to import than all the rest

        async with OpenAIPolicy(**endpoint) as model:
            yield model
    elif ":" in name:
        loaded: Any = load_object(name)
        chosen: Any = loaded() if inspect.isclass(loaded) else loaded
        yield chosen
    else:
        raise typer.BadParameter(
            f"there is no policy {name!r}; choose random, oracle, openai, module:callable or file.py:callable"
        )


def _writer(path: Path, resume: bool, overwrite: bool) -> TrajectoryWriter:
    try:
        return TrajectoryWriter(path, resume=resume, overwrite=overwrite)
    except FileExistsError:
        raise typer.BadParameter(f"{path} exists; say --resume, --overwrite or another --out") from None
    except OSError as error:
        raise typer.BadParameter(f"cannot write {path}: {error.strerror}") from None


def _options(pairs: list[str]) -> dict[str, Any]:
    """`name=json` pairs; what is no JSON is text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--option {pair!r} is no NAME=JSON")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _print(summary: Summary, environment: str) -> None:
    table = Table("measure", "value", title=shown(environment))
    for name, value in _rows(summary):
        table.add_row(shown(name), shown(value))
    console.print(table)
    if summary.failed:
        failed = ", ".join(f"{count} {kind}" for kind, count in summary.failed.items())
        errors.print(shown(f"failures, not counted in any mean: {failed}; --out FILE records why"))


def _rows(summary: Summary) -> list[tuple[str, str]]:
    rows = [("episodes", f"{summary.episodes} ({summary.scored} scored)")]
    if summary.mean is not None:
        rows.append(("mean reward", f"{summary.mean:.4f}" + _interval(summary.interval)))
        rows.append(("standard deviation", "–" if summary.std is None else f"{summary.std:.4f}"))
    if summary.success is not None:
        shown = f"{summary.success:.1%}" + _interval(summary.success_interval, percent=True)
        rows.append((f"success (reward ≥ {summary.success_at:g})", shown))
    rows += [(f"component {name}", f"{value:.4f}") for name, value in summary.components.items()]
    rows += [(f"ended: {reason}", str(count)) for reason, count in summary.end_reasons.items()]
    rows += [(f"failed: {kind}", str(count)) for kind, count in summary.failed.items()]
    if summary.unscored:
        rows.append(("unscored", str(summary.unscored)))
    if summary.steps is not None:
        rows.append(("steps per episode", f"{summary.steps:.1f}"))
    if summary.retried:
        rows.append(("needed more than one attempt", str(summary.retried)))
    if summary.usage is not None:
        rows.append(("tokens in / out", f"{summary.usage.input_tokens} / {summary.usage.output_tokens}"))
    rows.append(("seconds", f"{summary.seconds:.1f}"))
    return rows


def _interval(interval: tuple[float, float] | None, *, percent: bool = False) -> str:
    if interval is None:
        return ""
    low, high = (f"{bound:.1%}" if percent else f"{bound:.4f}" for bound in interval)
    return f"  (95 %: {low} to {high})"
