"""Play one episode with a harness: start it, wait for its end, and record what it earned.

The end of an episode is one of these, in this order:

    the harness called something else   a harness in a sandbox asked for another destination than the gateway and the
                                        episode: a failure of the kind `policy`, whatever else happened, unless the
                                        policy has used tools of the program's own, which may have asked
    the environment ended it            its reward counts, however the harness ended afterwards
    the harness loops                   it used up its calls or its time, mostly by sending one conversation again and
                                        again although the replies could be used: a failure of the kind `policy`,
                                        unscored, never a reward of 0
    a limit was reached                 truncated: `turn_limit` (model calls), `time_limit` or `context_limit`
    the harness broke                   truncated if the policy caused it (`blame`), else a failure of the kind `policy`
    the agent stopped                   its last message is graded, where the environment grades one

Where it is unclear who caused the end, the same replies are played once more in a new episode: the same end is the
policy's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ludus.client.driver import failure_of
from ludus.client.episode import Episode
from ludus.forms.tool_calls import spoken_text
from ludus.gateway.blame import Blame, blame, environment_tool, memory_kills, useless
from ludus.gateway.harness import (
    Harness,
    HarnessFailed,
    HarnessNetworkRefused,
    HarnessSandboxLost,
    HarnessTask,
)
from ludus.gateway.replayed import RecordedEngine
from ludus.gateway.server import Gateway
from ludus.gateway.session import EpisodeSession, GatewayLimits, ModelCall, TimeLimit
from ludus.gateway.wires.requests import AssistantEntry, CallText, OutputEntry, TextEntry
from ludus.protocol import errors as e
from ludus.protocol.content import TextBlock, text_of
from ludus.protocol.episodes import EpisodeInfo
from ludus.protocol.items import (
    CallItem,
    Item,
    MalformedCall,
    OutputItem,
    parse_arguments,
    text_message,
    to_json,
)
from ludus.protocol.lifecycle import EVENT_OF_REASON, EndReason, Event
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Failure, FailureKind, Stop, Trajectory, Usage, tool_records

POLICY: Final = "ludus.gateway"
GRACE_SECONDS: Final = 10.0
"""How long a harness may go on after its last model call was refused."""
LOOP: Final = 3
"""A harness that repeats a request fewer times is not taken to loop: some ask again after a reply they cannot use."""
SUBMIT: Final = "submit_answer"
"""The tool of the agent endpoint that submits an answer, which is no step."""


@dataclass(slots=True, eq=False)
class HarnessEpisode:
    """One episode that a harness plays.

    Args:
        episode: a started episode without steps.
        gateway: the gateway that the harness gets as its model.
        harness: the harness.
        name: the episode's name at the engine.
        seed: the seed from which the seeds of the model calls are derived.
        temperature: the sampling temperature; values other than 1 are for evaluation.
        episode_seconds: the most seconds of the whole episode.
        idle_seconds: the most seconds without a model call; after them the harness counts as broken.
        limits: the bounds of the model calls; those of the gateway when None.
        limit: makes the time limits, of the episode first and then of each call.
        again: starts another episode of the same task and seed, to play recorded replies in it; None where that would
            change something, such as a world that later episodes go on with.
    """

    episode: Episode
    gateway: Gateway
    harness: Harness
    name: str
    seed: int = 0
    temperature: float = 1.0
    episode_seconds: float | None = None
    idle_seconds: float | None = None
    limits: GatewayLimits | None = None
    limit: TimeLimit = asyncio.timeout
    again: Callable[[], Awaitable[Episode]] | None = None
    session: EpisodeSession = field(init=False)
    """The model calls and the samples."""
    ended_by: str | None = None
    """What the policy did to end the harness with an error; None if it did not."""
    _error: HarnessFailed | None = None
    _failure: Failure | None = None
    _stopped: Stop | None = None
    _info: EpisodeInfo | None = None
    _grade: Reward | None = None
    _rewards: dict[int, Reward] = field(default_factory=dict[int, Reward])
    _began: float = field(default_factory=time.time)
    _clock: float = field(default_factory=time.perf_counter)
    _kills: int = field(default_factory=lambda: memory_kills())
    _seconds: float = 0.0

    def __post_init__(self) -> None:
        self.session = self.gateway.open(
            self.name, seed=self.seed, temperature=self.temperature, limits=self.limits, limit=self.limit,
            ended=self._has_ended,
        )  # fmt: skip

    async def play(self) -> None:
        """Run the harness, and close the episode. `trajectory` and `session.samples` then hold what happened.

        Raises:
            RequestError: the request is set up wrongly, so every episode would fail.
            Exception: the error of the engine or the chat template that ended the session.
        """
        try:
            await self._run()
            await self._finish()
        except e.LudusError as error:
            if isinstance(error, e.RequestError) and not isinstance(error, (e.NotFound, e.Conflict)):
                await self.episode.__aexit__(type(error), error, None)
                raise
            self._failure = failure_of(error, self.episode.id)
            await self.episode.__aexit__(type(error), error, None)
        except BaseException as error:
            await self.episode.__aexit__(type(error), error, None)
            raise
        finally:
            await self.gateway.close(self.session)
            self._seconds = time.perf_counter() - self._clock
        if self.session.error is not None:
            raise self.session.error

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        whole: asyncio.Timeout | None = None
        try:
            async with self.limit(self.episode_seconds) as whole:
                await self._until_over(self.harness.run(self._task(self.episode, self.session)), self.session)
        except HarnessFailed as error:
            self._error = error
            kind: FailureKind = "infrastructure" if isinstance(error, HarnessSandboxLost) else "policy"
            self._failure = failure_of(error, self.episode.id, kind)
        except TimeoutError:
            if whole is None or not whole.expired():
                raise
            self._stopped = "time_limit"

    def _task(self, episode: Episode, session: EpisodeSession) -> HarnessTask:
        messages = tuple({"role": m.role, "content": text_of(m.content)} for m in episode.prompt)
        prompt = "\n\n".join(message["content"] for message in messages)
        base = self.gateway.base_url(session)
        return HarnessTask(episode.id, episode.require_play_url(), base, session.key, prompt, messages)

    async def _until_over(self, play: Awaitable[None], session: EpisodeSession) -> None:
        """Wait until the harness ends, and end it if it goes on without a model or makes no calls.

        Raises:
            HarnessFailed: see `Harness.run`; or it made no model call for `idle_seconds`.
        """
        running = asyncio.ensure_future(play)
        over = asyncio.create_task(session.over.wait())
        try:
            while not running.done() and not over.done():
                patience = self._patience(session)
                await asyncio.wait({running, over}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if not running.done() and not over.done() and self._patience(session) == 0:
                    raise HarnessFailed(f"the harness made no model call for {self.idle_seconds:g} s", how="idle")
            if over.done() and not running.done() and session.error is None:
                await asyncio.wait({running}, timeout=GRACE_SECONDS)
            if running.done():
                running.result()
        finally:
            over.cancel()
            running.cancel()
            await asyncio.gather(running, over, return_exceptions=True)

    def _patience(self, session: EpisodeSession) -> float | None:
        """Return how many more seconds the harness may be idle."""
        if self.idle_seconds is None:
            return None
        idle = 0.0 if session.running else time.perf_counter() - session.used_at
        return max(0.0, self.idle_seconds - idle)

    async def _has_ended(self) -> bool:
        with suppress(e.LudusError):  # the next step or the end of the episode will show what is wrong
            self._info = await self.episode.info()
        return self._info is not None and self._info.end_reason is not None

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _finish(self) -> None:
        """Close the episode, grade the agent's last message where that is due, and read what was earned.

        Raises:
            InvalidParams: the context is too small for the harness's first prompt, so no episode can be played.
        """
        info = await self.episode.info()
        if self.session.unfit is not None and info.end_reason is None:
            raise e.InvalidParams(
                f"the harness's first prompt has {self.session.unfit.tokens} tokens, and the context has only "
                f"{self.session.unfit.maximum}: raise the context of the rollouts, or give the harness a shorter prompt"
            )
        stopped = self.session.stopped or self._stopped
        judged = Blame("platform") if self._error is None else await self._blame(self._error, info)
        # Tokens of another model may have played an episode whose program asked for one, whatever it earned.
        refused = isinstance(self._error, HarnessNetworkRefused) and judged.who != "policy"
        if not self.session.calls and self.session.stopped is None and self.session.error is None:
            problem = HarnessFailed("the harness made no model call through the gateway; does it use its variables?")
            self._failure = self._failure or failure_of(problem, self.episode.id, "policy")
        elif (lost := self._lost_tools(info)) is not None:
            self._failure = failure_of(lost, self.episode.id, "policy")
        elif info.end_reason is None and stopped in ("turn_limit", "time_limit") and self._loops():
            problem = HarnessFailed(
                f"the harness sent the same conversation {self.session.repeated} times, without a reply in it, until "
                f"the {stopped.replace('_', ' ')}"
            )
            self._failure = failure_of(problem, self.episode.id, "policy")
        elif not refused and (info.end_reason is not None or stopped is not None):
            self._failure = None
            self._stopped = stopped if info.end_reason is None else None
        elif self._error is not None and judged.who == "policy":
            self._failure, self._stopped, self.ended_by = None, judged.stopped, judged.cause
        elif self._failure is None and self.session.error is None:
            info = await self._submit(info)
        with suppress(e.LudusError):
            entries = (await self.episode.rewards()).entries
            self._rewards = {entry.step: entry.reward for entry in entries if entry.source == "step"}
        closed = await self.episode.close()
        self._info = closed
        reason = info.end_reason
        if reason is not None and self._failure is None:
            self._failure = self._failure_of(reason, closed.incident)

    async def _blame(self, error: HarnessFailed, info: EpisodeInfo) -> Blame:
        """Return who caused the error of the harness; never `unclear`."""
        tools = frozenset(tool.name for tool in self.episode.tools)
        judged = blame(error, self.session, tools, out_of_memory=memory_kills() > self._kills)
        if judged.who != "unclear" or info.end_reason is not None or self.session.stopped is not None:
            return judged
        same = self.again is not None and self.session.error is None and await self._ends_so_again(error)
        return Blame("policy", judged.cause, judged.stopped) if same else Blame("platform")

    async def _ends_so_again(self, error: HarnessFailed) -> bool:
        """Return whether the harness ends in the same way, when it gets the same replies in a new episode."""
        assert self.again is not None
        try:
            episode = await self.again()
        except e.LudusError:
            return False
        gateway, recorded = self.gateway, RecordedEngine(self.gateway.engine, self.session)
        session = gateway.open(f"{self.name}/again", limits=self.limits, limit=self.limit, engine=recorded)
        try:
            async with self.limit(self.episode_seconds), episode:
                await self._until_over(self.harness.run(self._task(episode, session)), session)
        except HarnessFailed as failure:
            # An error after a call that has no reply any more says nothing about the recorded end.
            same = recorded.used_up and not recorded.diverged
            return same and (type(failure), failure.how) == (type(error), error.how)
        except (TimeoutError, e.LudusError):
            return False
        finally:
            await gateway.close(session)
        return False

    def _lost_tools(self, info: EpisodeInfo) -> HarnessFailed | None:
        """Return the failure of a harness that offered the policy tools, and none of the episode's.

        Its MCP client has lost them, or connects too late. A program may instead act by tools of other names, which
        shows in the steps of its episodes; it may then end one without any step.
        """
        tools = frozenset(tool.name for tool in self.episode.tools)
        offered = self.session.offered
        if not tools or any(environment_tool(name, tools) for name in offered):
            return None
        if not offered and not (self.harness.offers_tools and self.session.calls):
            return None  # it may act by its text
        self.gateway.maps_tools = self.gateway.maps_tools or info.steps > 0
        if self.gateway.maps_tools or info.end_reason is not None:
            return None
        named = f"{len(offered)} tools ({', '.join(sorted(offered)[:8])})" if offered else "no tools"
        return HarnessFailed(
            f"the harness offered the policy {named}, and none of the episode's "
            f"({', '.join(sorted(tools)[:8])}); is its MCP client connected before the first model call?"
        )

    def _loops(self) -> bool:
        """Return whether most of the calls asked for the same conversation, and replies that could be used were not."""
        repeated, calls = self.session.repeated, self.session.calls
        # Programs ask again after a reply that is cut or empty: no policy may end an episode unscored by such replies.
        return repeated >= LOOP and 2 * repeated > len(calls) and useless(calls[-1]) is None

    async def _submit(self, info: EpisodeInfo) -> EpisodeInfo:
        """Submit the agent's last message, as our own harness does; without one, the agent has given up."""
        last = self.session.calls[-1].turn
        if self.episode.gradable and not last.calls:
            result = await self.episode.grade(spoken_text(last.message))
            self._grade = result.reward
            return result.info
        self._stopped = "final_message"
        return info

    def _failure_of(self, reason: EndReason, incident: str | None) -> Failure | None:
        event = EVENT_OF_REASON[reason]
        if event not in (Event.FAIL, Event.CLOSE):
            return None
        return Failure(
            kind="environment" if reason is EndReason.ENVIRONMENT_ERROR else "infrastructure",
            error="EpisodeFailed",
            message=f"the episode ended with {reason}",
            incident=incident,
            attempt=1,
            episode=self.episode.id,
        )

    # ── the record ──────────────────────────────────────────────────────────────────────────────────────────────────

    def trajectory(self, *, sample: int = 0, version: str = "", policy: str = POLICY) -> Trajectory:
        """Return the record of the episode.

        Its items are the model calls in the order in which they ended: of each, the messages that its conversation did
        not have before, and the turn. Where the harness rewrote its context, the whole new context is there again.

        Args:
            sample: the number of this episode among several of the same task.
            version: the environment's version.
            policy: the policy's name.
        """
        items, turns = _conversation(self.session.calls)
        info = self._info
        return Trajectory.model_validate(
            {
                "environment": self.episode.environment,
                "environment_version": version,
                "split": self.episode.task.split,
                "task": self.episode.task,
                "sample": sample,
                "policy": policy,
                "seed": self.episode.seed,
                "episode": self.episode.id,
                "group": self.episode.group,
                "status": info.status if info else None,
                "end_reason": info.end_reason if info else None,
                "stopped": self._stopped,
                "reward": info.reward if info and self._failure is None else None,
                "grade": self._grade,
                "items": to_json(items),
                "tools": tool_records(self.episode.tools),
                "steps": self._steps(items),
                "turns": turns,
                "started_at": self._began,
                "seconds": self._seconds or time.perf_counter() - self._clock,
                "failure": self._failure,
            }
        )

    def _steps(self, items: list[Item]) -> list[dict[str, Any]]:
        """Return the steps with the calls that made them; none if the calls do not match the steps one to one.

        The agent endpoint does not say which call a step belongs to, and a harness may call other tools as well, and
        rename those of the episode. A call that the program itself has answered with an error made no step, so the
        calls without an error count where all of them are too many.
        """
        tools = frozenset(tool.name for tool in self.episode.tools)
        calls = [item for item in items if isinstance(item, CallItem) and environment_tool(item.call.tool, tools)]
        calls = list({call.call_id: call for call in calls}.values())
        if self._info is not None and len(calls) > self._info.steps:
            failed = {item.call_id for item in items if isinstance(item, OutputItem) and item.error}
            failed |= {call.call_id for call in calls if isinstance(call.call, MalformedCall)}
            calls = [call for call in calls if call.call_id not in failed]
        if self._info is None or len(calls) != self._info.steps:
            return []
        rewards = self._rewards
        return [
            {"step": step, "call_id": call.call_id, "reward": rewards.get(step), "seconds": 0.0}
            for step, call in enumerate(calls, start=1)
        ]


def _conversation(calls: list[ModelCall]) -> tuple[list[Item], list[dict[str, Any]]]:
    items: list[Item] = []
    turns: list[dict[str, Any]] = []
    ended = calls[0].began if calls else 0.0
    for call in calls:
        for entry in call.entries:
            if isinstance(entry, TextEntry):
                items.append(text_message(entry.role, entry.text))
            elif isinstance(entry, OutputEntry):
                items.append(OutputItem(entry.call_id, (TextBlock(text=entry.text),), entry.error))
            else:
                items += _restored(entry)
        items += call.turn.items
        if turns:
            turns[-1]["environment_seconds"] = max(0.0, call.began - ended)
        ended = call.began + call.seconds
        generation = call.generation
        usage = Usage(requests=1, input_tokens=call.start, output_tokens=len(generation.ids))
        turns.append({"items": len(items), "policy_seconds": call.seconds, "environment_seconds": 0.0, "usage": usage})
    return items, turns


def _restored(entry: AssistantEntry) -> list[Item]:
    calls: list[Item] = [CallItem(call.call_id, _call(call)) for call in entry.calls]
    return [text_message("assistant", entry.text), *calls] if entry.text or not calls else calls


def _call(call: CallText) -> Any:
    return parse_arguments(call.tool, call.arguments)
