"""Environments of verifiers' v0 API: `load_environment`, a dataset, a rubric, and rollouts with an OpenAI client."""

from __future__ import annotations

import contextvars
import functools
import hashlib
import importlib
import inspect
import json
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any

from .adapter import HostedEpisode, NotUsable, need
from .values import number, plain
from .verifiers_rollout import Exchange, Overlong, RolloutEpisode, hosted_tool, reply_name, reply_tool

_CAUSED_BY_AGENT = ("ToolParseError", "EmptyModelResponseError", "InvalidModelResponseError")
"""Errors of a rollout that an agent's own message causes; verifiers' own reward stands."""
_CUT = ("max_turns_reached", "timeout_reached", "prompt_too_long", "max_total_completion_tokens_reached")
"""Stop conditions by which an environment cuts a rollout short."""
_OUTSIDE = ("openai", "anthropic", "httpx", "httpcore", "aiohttp", "requests", "urllib3", "huggingface_hub")
"""Packages whose errors are a failure of something outside, not of the agent."""

Failures = dict[str, BaseException]

_failures: contextvars.ContextVar[Failures | None] = contextvars.ContextVar("failures", default=None)


class LoadedEnvironment:
    """An environment of `load_environment`.

    Attributes:
        splits: names, numbers of tasks and types.
        tools: the tools of every task.
        task_tools: whether a task may have others.
        doc: the docstring of the environment's class.
    """

    def __init__(self, module: str, options: dict[str, Any]) -> None:
        arguments = options.get("args") or {}
        self.failing = options.get("failing_rewards", "zero")
        self.verifiers = need("verifiers")
        for option in ("agent", "unsafe_shell"):
            if options.get(option):
                raise NotUsable(f"the option {option} is for tasksets; this is an environment of load_environment")
        try:
            self.env = self.verifiers.load_environment(module, **arguments)
            self.rows = self._datasets()
        except Exception as error:
            raise NotUsable(f"load_environment({_shown(arguments)}) of {module!r} failed: {_reason(error)}") from error
        if getattr(self.env, "requires_group_rollouts", False):
            raise NotUsable(f"{module!r} compares the rollouts of a group with each other, which no episode can do")
        self.doc = type(self.env).__doc__ or ""
        self.not_promised: dict[str, str] = {}
        self.weights = weights_of(self.env.rubric)
        for rubric in leaves(self.env.rubric):
            watch(rubric)
        self.splits = [
            (name, len(rows), {"train": "train", "eval": "test"}[name]) for name, rows in self.rows.items() if len(rows)
        ]
        if not self.splits:
            raise NotUsable(f"the datasets of {module!r} are empty")
        self.reply = options.get("reply", "auto")
        known = [_tool(one) for one in getattr(self.env, "tool_defs", None) or []]
        rows = next(iter(self.rows.values()))
        self.task_tools = hasattr(self.env, "env_map") or "info" in rows.column_names
        self.tools = [*known, reply_tool(reply_name([one["name"] for one in known]))] if self.replies() else known

    def _datasets(self) -> dict[str, Any]:
        """Return the datasets by split. Building one may raise anything."""
        found = {}
        if getattr(self.env, "dataset_source", None) is not None or getattr(self.env, "dataset", None) is not None:
            found["train"] = self.env.get_dataset()
        sources = ("eval_dataset_source", "eval_dataset")
        if any(getattr(self.env, name, None) is not None for name in sources):
            found["eval"] = self.env.get_eval_dataset()
        return found

    def replies(self) -> bool:
        """Return whether the agent can send messages that do not end the episode."""
        if self.reply != "auto":
            return bool(self.reply == "always")
        parts = getattr(self.env, "env_map", None)
        return any(answers_messages(self.verifiers, one) for one in (parts.values() if parts else [self.env]))

    def digest(self, split: str, index: int) -> str:
        """Return the identity of a row."""
        return hashlib.sha256(repr(self.rows[split][index]).encode()).hexdigest()

    def open(self, split: str, index: int) -> HostedEpisode:
        """Begin a rollout of a row."""
        failures: Failures = {}

        async def rollout(exchange: Exchange) -> Any:
            _failures.set(failures)
            return await self.env.run_rollout(
                input=self.rows[split][index],
                client=client_of(self.env, exchange),
                model="agent",
                sampling_args=deepcopy(getattr(self.env, "sampling_args", None) or {}),
            )

        return RolloutEpisode(rollout, lambda output: self.outcome(output, failures), self.replies())

    def outcome(self, output: Any, failures: Failures) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the outcome of a rollout, and the messages after the assistant's last.

        Raises:
            RuntimeError: the rollout or its scoring failed for a reason other than the agent.
        """
        error = output.get("error")
        if error and str(error.get("error")) not in _CAUSED_BY_AGENT:
            raise RuntimeError(f"the rollout failed: {error.get('error_chain_str') or error.get('error')}")
        for name, raised in failures.items():
            if self.failing == "unscored" or name == "judge" or is_outside(raised):
                raise RuntimeError(f"the reward function {name!r} failed: {_reason(raised)}") from raised
        metrics = output.get("metrics") or {}
        stop = output.get("stop_condition")
        cut = bool(output.get("is_truncated")) or stop in _CUT
        components = {
            str(name): {"value": value, "weight": self.weights.get(name, 0.0)} for name, value in metrics.items()
        }
        facts = {
            "stop_condition": stop,
            "failed_rewards": {name: _reason(failure) for name, failure in failures.items()},
        }
        reward = number(output.get("reward"), "the reward")
        ended = {"reward": reward, "components": components, "finished": not cut, "truncated": cut,
                 "metadata": facts}  # fmt: skip
        said = plain(list(output.get("completion") or []), "the completion")
        last = max((index for index, one in enumerate(said) if one.get("role") == "assistant"), default=len(said))
        return ended, said[last + 1 :]


def client_of(env: Any, exchange: Exchange) -> Any:
    """Return a client whose model is the agent: OpenAI's own, with requests that stay in this process."""
    openai, httpx = need("openai"), need("httpx")

    async def respond(request: Any) -> Any:
        body = json.loads(await request.aread())
        try:
            return httpx.Response(200, json=await exchange.complete(body))
        except Overlong as error:
            return httpx.Response(400, json={"error": {"message": str(error), "code": "context_length_exceeded"}})

    client = openai.AsyncOpenAI(
        base_url="http://agent.invalid/v1",
        api_key="agent",
        max_retries=0,
        timeout=None,
        http_client=httpx.AsyncClient(transport=httpx.MockTransport(respond), trust_env=False),
    )
    base = next(one.__module__ for one in type(env).__mro__ if one.__module__.endswith(".envs.environment"))
    try:
        clients = importlib.import_module(base[: -len("envs.environment")] + "clients")
    except ModuleNotFoundError:  # before 0.1.11, environments call OpenAI's client themselves
        return client
    return clients.OpenAIChatCompletionsClient(client)


def answers_messages(verifiers: Any, env: Any) -> bool:
    """Return whether an environment answers messages that call no tools."""
    if isinstance(env, verifiers.SingleTurnEnv) or not isinstance(env, verifiers.MultiTurnEnv):
        return False
    ends = getattr(verifiers.ToolEnv, "no_tools_called", None)
    own = getattr(type(env), "no_tools_called", None)
    return not isinstance(env, verifiers.ToolEnv) or own is not ends


def leaves(rubric: Any) -> list[Any]:
    """Return the rubrics that hold the functions of a rubric."""
    parts = list(getattr(rubric, "rubrics", None) or [])
    parts += [env.rubric for env in (getattr(rubric, "env_map", None) or {}).values()]
    return [rubric] if not parts else [leaf for part in parts for leaf in leaves(part)]


def weights_of(rubric: Any) -> dict[str, float]:
    """Return the weights of reward functions by name; a name with several weights is left out."""
    found: dict[str, set[float]] = {}
    for leaf in leaves(rubric):
        for function, weight in zip(leaf.funcs, leaf.weights):
            found.setdefault(getattr(function, "__name__", repr(function)), set()).add(float(weight))
    return {name: weights.pop() for name, weights in found.items() if len(weights) == 1}


def watch(rubric: Any) -> None:
    """Let a rubric's functions report what they raise: verifiers records 0 for it and goes on."""
    rubric.funcs[:] = [watched(func, getattr(func, "__name__", repr(func))) for func in rubric.funcs]
    judge = rubric.class_objects.get("judge")
    if callable(judge):
        rubric.class_objects["judge"] = watched(judge, "judge")


def watched(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function that notes what it raises for the rollout that called it."""

    async def waiting(value: Awaitable[Any]) -> Any:
        try:
            return await value
        except Exception as error:
            note(name, error)
            raise

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            value = function(*given, **named)
        except Exception as error:
            note(name, error)
            raise
        return waiting(value) if inspect.isawaitable(value) else value

    call.__name__ = name
    return call


def note(name: str, error: BaseException) -> None:
    """Note that a reward function of the current rollout raised."""
    failures = _failures.get()
    if failures is not None:
        failures.setdefault(name, error)


def is_outside(error: BaseException | None) -> bool:
    """Return whether an error, or one that led to it, comes from a service, a file or the network."""
    seen = 0
    while error is not None and seen < 20:
        names = [f"{kind.__module__}." for kind in type(error).__mro__]
        if isinstance(error, (OSError, TimeoutError, MemoryError)):
            return True
        if any(name.startswith(f"{package}.") for name in names for package in _OUTSIDE):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


def _tool(definition: Any) -> dict[str, Any]:
    given = plain(definition, "a tool")
    return hosted_tool(given.get("function", given))


def _shown(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def _reason(error: BaseException) -> str:
    cause = error.__cause__ if error.__cause__ is not None and not str(error) else error
    return f"{type(cause).__name__}: {cause}"
