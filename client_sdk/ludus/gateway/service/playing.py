"""How a worker plays the episodes of one job: connections, tokenizer, endpoint and harness, and one line for each.

Each attempt starts its episode under a key made of job, index and attempt. So an episode whose worker died is found
again under its key, and is closed by another worker (`JobPlayer.release`), also if the reply to its start was lost.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from ludus.client import Client, OpenAIPolicy, connect, run_episode
from ludus.client.agent_loop import Harness as LoopLimits
from ludus.client.causes import cause_of
from ludus.client.driver import EPISODE_LOST_ERRORS, failure_of
from ludus.client.environment import GroupMember, RemoteEnvironment, find_split
from ludus.client.episode import Episode
from ludus.gateway.completions import CompletionsEngine
from ludus.gateway.episodes import HarnessEpisode
from ludus.gateway.harness import Harness, HarnessFailed, make_harness
from ludus.gateway.server import Gateway
from ludus.gateway.service.places import Place, derive_seed
from ludus.gateway.service.schema import RolloutRequest
from ludus.gateway.session import GatewayLimits
from ludus.gateway.token_policy import TokenPolicy
from ludus.protocol import errors as e
from ludus.protocol.episodes import EnvironmentInfo, TaskRow
from ludus.protocol.items import text_message
from ludus.protocol.lifecycle import is_truncated
from ludus.protocol.trajectory import Trajectory
from ludus.rendering.errors import RenderingError, TemplateExceeded
from ludus.rendering.samples import Sample

if TYPE_CHECKING:
    from ludus.rendering import Renderer

RECONNECT_SECONDS: Final = 10.0
"""How long a worker tries to reach the environment's server again."""
REQUEST_SECONDS: Final = 120.0
"""The most seconds of one request to that server."""
RETRIED_KINDS: Final = ("infrastructure", "policy")
"""The kinds of problems after which an episode is played again."""
_OF_TEMPLATE: Final = (RenderingError.__name__, TemplateExceeded.__name__)
_TRUNCATING: Final = ("turn_limit", "time_limit", "context_limit")

OpenRenderer = Callable[[RolloutRequest, AsyncExitStack], Awaitable["Renderer"]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt."""

    line: dict[str, Any]
    """The fields of its line, except its number."""
    problem: dict[str, Any] | None
    """Why it is unscored; None if it is scored."""
    retry: bool
    """Whether another attempt may succeed."""


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """The bounds of the service's own loop; see `TokenLimits`."""

    max_tokens: int
    context: int
    context_overflow: Literal["stop", "truncate_oldest", "summarize"] = "stop"


class JobPlayer:
    """The part of a job that one worker plays. Use it as an async context manager, which closes all connections.

    Args:
        request: the request.
        open_renderer: returns the renderer of a request, which is closed with the stack that it gets.
        harnesses: the harnesses that the service was started with, by name.
    """

    def __init__(self, request: RolloutRequest, open_renderer: OpenRenderer, harnesses: Mapping[str, str]) -> None:
        self.request: Final[RolloutRequest] = request
        """The request."""
        self._open_renderer = open_renderer
        self._harnesses = harnesses
        self._stack = AsyncExitStack()
        self._client: Client
        self._environment: RemoteEnvironment
        self._info: EnvironmentInfo
        self._renderer: Renderer
        self._engine: CompletionsEngine
        self._gateway: Gateway
        self._harness: Harness | None = None
        self._text: OpenAIPolicy

    async def connect(self) -> None:
        """Connect to the environment's server.

        Raises:
            LudusError: it is not reachable, refuses the token, or has no such environment.
        """
        address = self.request.environment
        # An empty token: without one, the client would take that of the service's own variables.
        token = address.token.get_secret_value() if address.token is not None else ""
        client = connect(
            address.url, token=token, wire=address.wire, timeout=REQUEST_SECONDS, reconnect_seconds=RECONNECT_SECONDS
        )
        self._client = await self._stack.enter_async_context(client)
        self._environment = self._client.environment(address.name)
        self._info = await self._environment.info()

    async def open(self) -> None:
        """Connect to everything that an episode needs.

        Raises:
            LudusError: a server or the endpoint is not reachable or refuses; or the tokenizer or harness is unusable.
        """
        await self.connect()
        request, model = self.request, self.request.model
        key = model.api_key.get_secret_value() if model.api_key is not None else ""
        sampling = request.sampling
        further = {"top_p": sampling.top_p, "top_k": sampling.top_k, "min_p": sampling.min_p}
        if not request.tokens:
            options = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens}
            options |= {name: value for name, value in further.items() if value != _NEUTRAL[name]}
            policy = OpenAIPolicy(model.name, model.url, key, options=options, timeout=model.seconds, attempts=3)
            self._text = await self._stack.enter_async_context(policy)
            return
        try:
            self._renderer = await self._open_renderer(request, self._stack)
        except (RenderingError, OSError, ValueError) as error:
            raise e.InvalidParams(f"model.tokenizer or model.chat_template cannot be used: {error}") from None
        engine = CompletionsEngine(
            model.name, model.url, context=model.context, api_key=key, version=model.version, parameters=further,
            seconds=model.seconds,
        )  # fmt: skip
        self._engine = await self._stack.enter_async_context(engine)
        if request.harness is not None:
            await self._open_harness(request.harness)

    async def _open_harness(self, name: str) -> None:
        try:
            self._harness = make_harness(self._harnesses.get(name, name))
        except HarnessFailed as error:
            raise e.InvalidParams(f"harness: {error}") from None
        self._stack.push_async_callback(self._harness.aclose)
        bounds = self.request.limits
        limits = GatewayLimits(
            max_calls=bounds.max_turns, max_tokens=self.request.sampling.max_tokens, call_seconds=bounds.turn_seconds
        )
        self._gateway = await self._stack.enter_async_context(Gateway(self._engine, self._renderer, limits=limits))

    async def check(self) -> None:
        """Check before the first episode what would make all of them fail.

        Raises:
            LudusError: such as an unknown split, too few tasks, seeds for an environment without them, or an endpoint
                that returns no token ids.
        """
        request, info = self.request, self._info
        splits = {request.split} if request.tasks is None else {task.split or request.split for task in request.tasks}
        for name in sorted(splits):
            count = find_split(info, name, 1).count
            if request.n is not None and count is not None and request.first + request.n > count:
                raise e.InvalidParams(
                    f"the split {name!r} has {count} tasks; it has no {request.n} tasks from index {request.first} on"
                )
        seeds = request.seed is not None or any(task.seed is not None for task in request.tasks or ())
        if seeds and not info.seedable:
            raise e.Unsupported(f"{info.name!r} is not seedable, so it refuses seeds: leave them out of the request")
        if request.tokens:
            ids = await self._probe_ids()
            await self._engine.check(ids, self._renderer.stop)
        else:
            await self._text.check()

    async def _probe_ids(self) -> list[int]:
        """Return the ids of a short prompt.

        Raises:
            InvalidParams: the chat template cannot render it.
        """
        try:
            return await self._renderer.run(self._renderer.prompt, [text_message("user", "probe")], ())
        except RenderingError as error:
            raise e.InvalidParams(f"model.chat_template cannot be used: {error}") from None

    async def play(self, place: Place) -> Outcome:
        """Play an attempt at an episode, and close the episode."""
        began = time.time()
        try:
            episode = await self._start(place)
        except e.LudusError as error:
            return self._not_started(place, error, began)
        name = f"{place.job}.{place.index}.{place.attempt}"
        seed = derive_seed(place.seed, "policy", place.index, place.attempt)
        try:
            if self._harness is not None:
                return await self._with_harness(place, episode, self._harness, name, seed)
            if self.request.tokens:
                return await self._with_tokens(place, episode, name, seed)
            trajectory = await self._run(episode, self._text, place)
            return self._outcome(place, trajectory, ())
        except e.LudusError as error:
            return self._not_started(place, error, began, episode)

    async def release(self, place: Place) -> None:
        """Close the episode of an attempt whose worker died.

        Raises:
            LudusError: the server is not reachable, or it had not opened the episode and cannot.
        """
        episode = await self._start(place)
        await episode.close()

    async def __aenter__(self) -> JobPlayer:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    # ── playing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self, place: Place, *, again: bool = False) -> Episode:
        """Start the episode of a place; `again` starts another one of the same task and seed, which no worker finds."""
        group = place.index // self.request.samples
        seed = derive_seed(place.seed, "episode", group) if self._info.seedable else None
        split, task = self.request.split, None
        index: int | None = self.request.first + group
        if self.request.tasks is not None:
            chosen = self.request.tasks[group]
            split, task, index = chosen.split or split, chosen.task, chosen.index
            seed = seed if chosen.seed is None else chosen.seed
        join = None if again else GroupMember(place.key, 1, 0)
        return await self._environment.start(split=split, task=task, index=index, seed=seed, join=join)

    async def _with_tokens(self, place: Place, episode: Episode, name: str, seed: int) -> Outcome:
        sampling = self.request.sampling
        limits = TurnLimits(sampling.max_tokens, self._engine.context)
        policy = TokenPolicy(self._engine, self._renderer, limits, name, seed, sampling.temperature)
        try:
            trajectory = await self._run(episode, policy, place)
        finally:
            await policy.aclose()
        return self._outcome(place, trajectory, policy.samples, policy.parse_errors, cut=policy.cut)

    async def _with_harness(self, place: Place, episode: Episode, harness: Harness, name: str, seed: int) -> Outcome:
        bounds = self.request.limits
        playing = HarnessEpisode(
            episode, self._gateway, harness, name, seed=seed, temperature=self.request.sampling.temperature,
            episode_seconds=bounds.episode_seconds, idle_seconds=bounds.idle_seconds,
            again=partial(self._start, place, again=True),
        )  # fmt: skip
        await playing.play()
        session = playing.session
        trajectory = playing.trajectory(sample=place.index % self.request.samples, version=self._info.version)
        return self._outcome(place, trajectory, session.play_samples, session.parse_errors, cut=session.cut)

    async def _run(self, episode: Episode, policy: Any, place: Place) -> Trajectory:
        bounds = self.request.limits
        limits = LoopLimits(bounds.max_turns, bounds.turn_seconds, bounds.episode_seconds)
        sample = place.index % self.request.samples
        return await run_episode(episode, policy, harness=limits, sample=sample, version=self._info.version)

    # ── the line ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _outcome(
        self, place: Place, trajectory: Trajectory, samples: tuple[Sample, ...], parse_errors: int = 0, *,
        cut: bool = False,
    ) -> Outcome:  # fmt: skip
        line = self._line(place, trajectory)
        problem = _problem(trajectory, place.attempt)
        if problem is not None:
            return Outcome({"type": "unscored", **line, "problem": problem}, problem, problem["kind"] in RETRIED_KINDS)
        assert trajectory.reward is not None
        scored = {
            "reward": trajectory.value,
            "components": {name: part.value for name, part in trajectory.reward.components.items()},
            "truncated": cut or trajectory.stopped in _TRUNCATING or is_truncated(trajectory.end_reason),
            "samples": [_sample(sample) for sample in samples],
            "parse_errors": parse_errors,
        }
        return Outcome({"type": "episode", **line, **scored}, None, retry=False)

    def _not_started(self, place: Place, error: e.LudusError, began: float, episode: Episode | None = None) -> Outcome:
        group = place.index // self.request.samples
        task = episode.task if episode is not None else _unknown_task(self.request, group)
        trajectory = Trajectory(
            environment=self._info.name, environment_version=self._info.version, split=task.split, task=task,
            policy="", seed=episode.seed if episode is not None else None, started_at=began,
            episode=episode.id if episode is not None else None,
            seconds=time.time() - began, failure=failure_of(error),
        )  # fmt: skip
        outcome = self._outcome(place, trajectory, ())
        if isinstance(error, e.RequestError) and not isinstance(error, EPISODE_LOST_ERRORS):
            problem = {**(outcome.problem or {}), "kind": "request"}
            return Outcome({**outcome.line, "problem": problem}, problem, retry=False)
        return outcome

    def _line(self, place: Place, trajectory: Trajectory) -> dict[str, Any]:
        group, sample = divmod(place.index, self.request.samples)
        line: dict[str, Any] = {
            "index": place.index,
            "group": group,
            "sample": sample,
            "environment": trajectory.environment,
            "split": trajectory.split,
            "task": trajectory.task.id,
            "seed": trajectory.seed,
            "episode": trajectory.episode,
            "attempt": place.attempt,
            "end_reason": trajectory.end_reason,
            "stopped": trajectory.stopped,
            "earlier": list(place.earlier),
            "seconds": trajectory.seconds,
        }
        if self.request.trajectory:
            attempts = trajectory.model_copy(update={"attempts": place.attempt})
            line["trajectory"] = attempts.model_dump(mode="json")
        return line


_NEUTRAL: Final[Mapping[str, float]] = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}


def _problem(trajectory: Trajectory, attempt: int) -> dict[str, Any] | None:
    failure = trajectory.failure
    if failure is not None:
        # Every episode of a conversation that the chat template cannot render would fail.
        kind = "request" if failure.error in _OF_TEMPLATE else failure.kind
        return {"kind": kind, "error": failure.error, "message": failure.message, "attempt": attempt}
    cause = cause_of(trajectory)
    if cause is None:
        return None
    return {"kind": "no_verdict", "error": "Unscored", "message": cause[1], "attempt": attempt}


def _sample(sample: Sample) -> dict[str, Any]:
    return {
        "ids": sample.ids,
        "mask": [int(own) for own in sample.mask],
        "logprobs": sample.logprobs,
        "versions": sample.versions,
        "turns": sample.turns,
    }


def _unknown_task(request: RolloutRequest, group: int) -> TaskRow:
    chosen = request.tasks[group] if request.tasks is not None else None
    split = request.split if chosen is None else chosen.split or request.split
    return TaskRow(id=(chosen.task or "") if chosen is not None else "", split=split, index=request.first, fields={})
