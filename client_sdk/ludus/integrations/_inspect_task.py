"""The task, the solver and the scorer for Inspect AI; see `ludus.integrations.inspect`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import anyio
from inspect_ai import Task, task  # pyright: ignore[reportMissingImports]
from inspect_ai.dataset import MemoryDataset, Sample  # pyright: ignore[reportMissingImports]
from inspect_ai.model import ChatMessage, execute_tools  # pyright: ignore[reportMissingImports]
from inspect_ai.scorer import (  # pyright: ignore[reportMissingImports]
    Score,
    Scorer,
    Target,
    mean,
    scorer,
    stderr,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver  # pyright: ignore[reportMissingImports]
from inspect_ai.tool import ToolDef, ToolError, ToolResult  # pyright: ignore[reportMissingImports]
from inspect_ai.util import LimitExceededError  # pyright: ignore[reportMissingImports]

from ludus.client import (
    Call,
    CallItem,
    Driver,
    EpisodeOutcome,
    OutputItem,
    ServerAddress,
    TaskAddress,
    ToolSpec,
    Turn,
    WireName,
    text_of,
)
from ludus.client.sync import connect
from ludus.integrations._inspect_convert import chat_message, contents, tool_params
from ludus.integrations.unscored import not_started, play_again
from ludus.protocol.errors import LudusError
from ludus.protocol.trajectory import Stop

OUTCOME: Final = "ludus"
"""The key of the outcome in a sample's store."""

CLOSE_SECONDS: Final = 10.0
"""How long the end of an episode may take after its sample was canceled."""

_TERMINATED: Final = "TerminateSampleError"
"""The private exception with which an approver or an operator of Inspect ends a sample, which is then scored."""

_STOPS: Final[dict[str, Stop]] = {"token": "context_limit", "time": "time_limit", "working": "time_limit"}
"""Why an episode stops, by the type of Inspect's limit; `turn_limit` for the others."""


@task  # type: ignore[untyped-decorator]
def environment(
    url: str,
    environment: str,
    split: str = "test",
    n: int | None = None,
    seed: int | None = None,
    max_turns: int = 200,
    token_variable: str = "LUDUS_TOKEN",
    wire: WireName = "auto",
) -> Task:
    """Return the tasks of a split as an Inspect task.

    Args:
        url: the server's address.
        environment: the environment's name.
        split: the split that the tasks come from.
        n: how many tasks, from the first; all when None.
        seed: the seed of each episode; drawn by the server when None.
        max_turns: the most turns of the model in one episode.
        token_variable: the environment variable with the token. The token itself appears in no log.
        wire: how to talk to the server; see `ludus.client.connect`.
    """
    server = ServerAddress(url, wire, token_variable)
    with connect(url, token=os.environ.get(token_variable), wire=wire) as client:
        remote = client.environment(environment)
        version = remote.info().version
        samples = [
            Sample(
                id=preview.task.id,
                input=[chat_message(message) for message in preview.prompt],
                metadata={
                    "ludus": server.task(environment, split, preview.task.id, seed).to_json(),
                    "task": preview.task.fields,
                },
            )
            for preview in remote.previews(split, n=n, seed=seed)
        ]
    return Task(
        dataset=MemoryDataset(samples, name=f"{environment}/{split}", location=url),
        solver=episode(max_turns),
        scorer=reward(),
        fail_on_error=False,
        name=environment,
        metadata={"environment_version": version},
    )


@solver  # type: ignore[untyped-decorator]
def episode(max_turns: int = 200) -> Solver:
    """Play an episode of the sample's task: its metadata `ludus` is the address. Earlier system messages are kept."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        address = TaskAddress.from_json(state.metadata["ludus"])
        given = [] if isinstance(state.input, str) else state.input
        own = {message.text for message in given if message.role == "system"}
        system = [message for message in state.messages if message.role == "system" and message.text not in own]
        outcome = await play_again(lambda: _play(address, state, generate, system, max_turns), "inspect")
        _saved(state, outcome)
        state.completed = True
        return state

    return solve


async def _play(
    address: TaskAddress, state: TaskState, generate: Generate, system: Sequence[ChatMessage], max_turns: int
) -> EpisodeOutcome:
    """Play one episode. Its outcome is in the sample's store even if an exception leaves, such as a limit."""
    async with AsyncExitStack() as stack:
        try:
            driver = await stack.enter_async_context(address.drive())
        except LudusError as error:
            return not_started(error)
        outcome: EpisodeOutcome | None = None
        stopped: Stop = "turn_limit"
        canceled = False
        try:
            state.messages = [*system, *map(chat_message, driver.episode.prompt)]
            state.tools = [_tool(driver, *both) for both in zip(driver.episode.tools, driver.tools, strict=True)]
            stopped = await _take_turns(driver, state, generate, max_turns)
        except LimitExceededError as error:
            stopped = _STOPS.get(error.type, "turn_limit")
            raise
        except Exception as error:
            if type(error).__name__ != _TERMINATED:
                await driver.fail(error, "policy")
            raise
        except BaseException:
            stopped, canceled = "time_limit", True
            raise
        finally:
            with anyio.move_on_after(CLOSE_SECONDS if canceled else None, shield=canceled):
                outcome = _saved(state, await driver.finish(stopped))
                await stack.aclose()
    assert outcome is not None
    return outcome


async def _take_turns(driver: Driver, state: TaskState, generate: Generate, max_turns: int) -> Stop:
    """Let the model act until the episode is done; return why to stop it if it is not."""
    for _ in range(max_turns):
        await generate(state, tool_calls="none")
        if state.output.stop_reason == "model_length":
            return "context_limit"
        if state.output.message.tool_calls:
            state.messages.extend((await execute_tools(state.messages, state.tools)).messages)
        else:
            await driver.act(state.output.completion)
        if driver.done:
            break
    return "turn_limit"


def _saved(state: TaskState, outcome: EpisodeOutcome) -> EpisodeOutcome:
    """Write an outcome into the sample's store, from which the scorer reads it."""
    fields = {name: getattr(outcome, name) for name in ("value", "reason", "components", "end_reason", "stopped")}
    kind = outcome.failure.kind if outcome.failure is not None else None
    state.store.set(OUTCOME, {**fields, "components": dict(outcome.components), "failure": kind})
    return outcome


def _tool(driver: Driver, spec: ToolSpec, shown: dict[str, Any]) -> ToolDef:
    """Return a tool of an episode for Inspect. Steps run one after another, in the order of the calls."""

    async def execute(**arguments: Any) -> ToolResult:
        if driver.done:
            raise ToolError("not run: the episode had ended")
        await driver.take(Turn((CallItem("call", Call(tool=spec.name, arguments=arguments)),)))
        output = driver.items[-1]
        if not isinstance(output, OutputItem):
            raise ToolError("the call had no result: the episode failed")
        if output.error:
            raise ToolError(text_of(output.content))
        return contents(output.content)

    function = shown["function"]
    return ToolDef(execute, function["name"], function["description"] or function["name"], tool_params(spec))


@scorer(metrics=[mean(), stderr()])  # type: ignore[untyped-decorator]
def reward() -> Scorer:
    """Score a sample with the value of its episode."""

    async def score(state: TaskState, target: Target) -> Score:
        found = {"value": None, "reason": "the episode did not end", "failure": None, **state.store.get(OUTCOME, {})}
        value, reason = found.pop("value"), found.pop("reason")
        if value is None:
            kind = found["failure"]
            cause = f"{kind}_failure" if kind else "scoring_failed"
            return Score.unscored(reason=cause, explanation=reason, metadata=found)
        return Score(value=value, answer=state.output.completion, metadata=found)

    return score
