"""Drive one episode from code that owns its own loop, such as a trainer, an agent, or `run_episode`.

How this works:

* A `Driver` holds the conversation of one episode in two forms: as items, for the trajectory, and as entries in the
  form of a model provider, for the caller's next request.
* `act` takes one assistant message. It makes the message's calls, or grades the message if it has none, and records
  the outcomes. Calls of one message run concurrently; their outcomes are recorded in the order of the calls.
* The policy's mistakes (an unknown tool, wrong arguments, arguments that are not JSON) become observations.
* If the environment or the connection fails, `done` is true and `failure` is set. The failure is not raised, because a
  caller that forgets to catch it would count the episode as worth 0.
* `finish` closes the episode and returns its `EpisodeOutcome`. The value is None if the episode is unscored.
* Errors that every episode would have, such as a refused token, are raised.
* `continue_in` copies the conversation so far into a driver of a forked episode, which goes on by itself. The copied
  records cost nothing there: no time and no tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from ludus.client.episode import Episode
from ludus.client.formats import FORMATS, FormatName, observations
from ludus.client.policies.base import CallIds, Turn
from ludus.forms.endings import read_ending
from ludus.forms.tool_calls import spoken_text
from ludus.protocol import errors as e
from ludus.protocol.actions import Call
from ludus.protocol.content import TextBlock
from ludus.protocol.episodes import TURN_TEXT_CHARS, EpisodeInfo, GradeResult, StepError, StepResult, TurnMark
from ludus.protocol.items import CallItem, Item, MalformedCall, OutputItem, checked, to_json
from ludus.protocol.lifecycle import EVENT_OF_REASON, EndReason, Event
from ludus.protocol.rewards import Reward, total
from ludus.protocol.text import replace_surrogates
from ludus.protocol.trajectory import Branch, Failure, FailureKind, Stop, Trajectory, tool_records

__all__ = ["EPISODE_LOST_ERRORS", "failure_of"]


EPISODE_LOST_ERRORS: Final = (e.EpisodeNotFound, e.EpisodeEnded, e.StepConflict, e.KeyConflict, e.GroupNotFound)
"""Request errors that mean that the episode was lost, not that the request was wrong."""


class Observed(NamedTuple):
    """What the environment answered to one assistant message."""

    observations: list[dict[str, Any]]
    """Entries in the provider's form for the next request; they are in `Driver.messages` already."""
    done: bool
    """Whether there is nothing more to do than `finish`."""


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """How an episode ended and what it earned."""

    value: float | None
    """The total reward; None if the episode is unscored, which must not be counted as 0."""
    reason: str
    """Why the episode is unscored; empty if it is scored."""
    components: Mapping[str, float]
    """The unweighted values of the reward's components, by name."""
    end_reason: EndReason | None
    """Why the episode ended; None if the connection was lost before the client knew."""
    stopped: Stop | None
    """Why the caller stopped an episode that the environment had not ended."""
    failure: Failure | None
    """What broke, if something did."""

    def raise_for_failure(self) -> None:
        """Raise an exception if the episode is unscored because something broke.

        Raises:
            EnvironmentFailed, InfrastructureFailed, PolicyFailed: by the failure's kind.
        """
        if self.failure is not None:
            raise self.failure.as_error()


class Driver:
    """One episode that its caller plays message by message.

        async with environment.drive(task="sum-7") as driver:
            done = False
            while not done:
                reply = await openai.chat.completions.create(model="…", **driver.request)
                observations, done = await driver.act(reply.choices[0].message)
            outcome = await driver.finish()

    Leaving the `async with` block closes the episode.

    Args:
        episode: a started episode without steps.
        form: the form of messages and tools: of a provider, `openai-chat`, `openai-responses`, `anthropic` or `google`;
            or of sampled text, `hermes`, `llama` or `pythonic`.
    """

    def __init__(self, episode: Episode, *, form: FormatName = "openai-chat") -> None:
        self.episode: Final[Episode] = episode
        """The episode, for its task, seed and limits."""
        self.form: Final[FormatName] = form
        """The form of messages and tools."""
        self.items: Final[list[Item]] = list(episode.prompt)
        """The conversation so far, in the form of `ludus.protocol.items`."""
        self.place: str = ""
        """The place in the tree if this is a branch, such as `3.0`; see `ludus.protocol.trajectory.Branch`."""
        self._branch: Branch | None = None
        self._results: tuple[StepResult, ...] = ()
        self._stopped: Stop | None = None
        self._failure: Failure | None = None
        self._done = False
        self._request: dict[str, Any] | None = None
        self._steps: list[dict[str, Any]] = []
        self._turns: list[dict[str, Any]] = []
        self._ids = CallIds()
        self._used_ids: set[str] = set()
        self._end: StepResult | EpisodeInfo | None = None
        self._graded: GradeResult | None = None
        self._reward: Reward | None = None
        self._seconds: float | None = None
        self._started_at, self._clock = time.time(), time.perf_counter()

    @property
    def results(self) -> tuple[StepResult, ...]:
        """The results of the last message's calls, with their rewards; not for the policy."""
        return self._results

    @property
    def failure(self) -> Failure | None:
        """What broke, if something did."""
        return self._failure

    @property
    def done(self) -> bool:
        """Whether there is nothing more to do than `finish`."""
        return self._done

    @property
    def turns(self) -> int:
        """The number of turns taken; in a branch, those before it count."""
        return len(self._turns)

    @property
    def steps(self) -> int:
        """The number of steps that the environment has answered; in a branch, those before it count."""
        return max((step["step"] for step in self._steps), default=0)

    # ── the conversation in the provider's form ────────────────────────────────────────────────────────────────────

    @property
    def request(self) -> dict[str, Any]:
        """The fields of the provider's request that hold the conversation and the tools, if there are tools."""
        if self._request is None:
            form = FORMATS[self.form]
            self._request = form.messages(self.items)
            if self.episode.tools:
                self._request["tools"] = form.tools(self.episode.tools)
        return self._request

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation in the provider's form, without a system prompt that is a field of its own."""
        conversation: list[dict[str, Any]] = self.request[FORMATS[self.form].CONVERSATION]
        return conversation

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools in the provider's form."""
        tools: list[dict[str, Any]] = self.request.get("tools", [])
        return tools

    # ── acting ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def act(self, message: Mapping[str, Any] | str | object) -> Observed:
        """Take one assistant message: make its calls, or submit it as the final message if it has none.

        Args:
            message: the model's reply in the provider's form: the whole response or its message, as a mapping or as an
                object of the provider's package; or a text.

        Raises:
            InvalidParams: this is not a reply in the provider's form, or the response says that the endpoint failed
                (see `ludus.forms.endings`): nothing has changed, so that the endpoint can be asked again. Or
                the episode is done.
            RequestError: the request is set up wrongly, so every episode would fail; such as a refused token.
        """
        if self.done:
            raise e.InvalidParams(f"episode {self.episode.id} is done; call finish() instead of act()")
        form = FORMATS[self.form]
        reply = form.from_text(message) if isinstance(message, str) else _mapping(message)
        ended = read_ending(reply)
        if ended.problem is not None:
            raise e.InvalidParams(f"this is not a reply: the endpoint answered, but {ended.problem}; ask again")
        if ended.ending == "context":
            await self.take(Turn((), stopped="context_limit"))
            return Observed([], self.done)
        try:
            items, entries = form.items(reply, self.episode.tools), form.reply(reply)
        except (KeyError, TypeError, IndexError, AttributeError, e.ParseError) as error:
            raise e.InvalidParams(f"this is not a reply in the form {self.form}: {error!r}: {reply!r:.200}") from None
        calls = [item for item in items if isinstance(item, CallItem)]
        # Before `take`: on its first use the property takes all items, and would hold the new ones twice.
        messages, before = self.messages, len(self.items)
        await self.take(Turn(tuple(items)))
        messages += entries
        new = self.items[before:]
        # Ids that repeat were replaced in `items`; the provider gets those that it gave.
        observed = observations(form, calls, new)
        messages += observed
        return Observed(observed, self.done)

    async def take(self, turn: Turn, policy_seconds: float = 0.0) -> None:
        """Take one turn in the neutral form; see `act`. `policy_seconds` is what the policy took, for the record.

        Raises:
            RequestError: the request is set up wrongly, so every episode would fail.
        """
        began = time.perf_counter()
        try:
            await self._act(turn)
        except e.LudusError as error:
            await self.fail(error)
            return
        self._turns.append(
            {
                "items": len(self.items),
                "policy_seconds": policy_seconds,
                "environment_seconds": time.perf_counter() - began,
                "usage": turn.usage,
            }
        )

    async def _act(self, turn: Turn) -> None:
        if turn.stopped is not None:
            self._stopped, self._done = turn.stopped, True
            return
        number = len(self._turns) + 1
        items = [self._recordable(item) if isinstance(item, CallItem) else item for item in turn.items]
        # Before the calls: the record of an episode that breaks in them still shows what the policy did.
        self.items.extend(items)
        calls = [item for item in items if isinstance(item, CallItem)]
        if calls:
            await self._call_all(calls, self._marks(calls, number, turn))
            self._done = self._end is not None
            return
        if self.episode.gradable:
            try:
                self._graded = await self.episode.grade(spoken_text(turn.text))
                self._end = self._graded.info
            except e.EpisodeEnded:
                self._end = await self.episode.info()
        else:
            self._stopped = "final_message"
        self._done = True

    def _recordable(self, item: CallItem) -> CallItem:
        """Return a call in a form that can be recorded: with a unique id and with arguments that JSON can hold.

        Ids can repeat because some endpoints restart the numbering of calls in each turn.
        """
        call_id = item.call_id
        while call_id in self._used_ids:
            call_id = self._ids.next()
        self._used_ids.add(call_id)
        call = checked(item.call) if isinstance(item.call, Call) else item.call
        return item if call is item.call and call_id == item.call_id else CallItem(call_id, call)

    def _marks(self, calls: Sequence[CallItem], number: int, turn: Turn) -> list[TurnMark | None]:
        """Return the turn mark of each call; None for all of them if the environment does not judge turns."""
        if not self.episode.judges_turns:
            return [None] * len(calls)
        wellformed = [index for index, item in enumerate(calls) if isinstance(item.call, Call)]
        if not wellformed:
            return [None] * len(calls)
        text = replace_surrogates(spoken_text(turn.text)[:TURN_TEXT_CHARS])
        return [
            TurnMark(number=number, last=at == wellformed[-1], text=text * (at == wellformed[0]))
            for at in range(len(calls))
        ]

    async def _call_all(self, calls: Sequence[CallItem], marks: Sequence[TurnMark | None]) -> None:
        """Make the calls, several of them concurrently, and record their outcomes in the order of the calls."""
        if len(calls) == 1:
            answers: list[_Answer | BaseException] = [await self._call(calls[0], marks[0])]
        else:
            # All are awaited before an error is raised, since the other calls have run and their rewards count.
            answers = list(await asyncio.gather(*map(self._call, calls, marks), return_exceptions=True))
        results: list[StepResult] = []
        broken: BaseException | None = None
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(answer, BaseException):
                broken = broken or answer
                continue
            if answer is None:
                refusal = TextBlock(text="not run: the episode had ended")
                self.items.append(OutputItem(call.call_id, (refusal,), error=True))
                continue
            result, seconds = answer
            self._record_step(call, result, seconds)
            results.append(result)
        if broken is not None:
            raise broken
        self._results = tuple(results)
        if self._end is None and len(results) < len(calls):
            self._end = await self.episode.info()

    async def _call(self, item: CallItem, turn_mark: TurnMark | None) -> _Answer:
        """Return the result of a call and its seconds; None if the episode had already ended, such as by a limit."""
        before = time.perf_counter()
        if isinstance(item.call, MalformedCall):
            return _policy_error(item.call.problem), 0.0
        try:
            call = (
                self.episode.call(item.call) if turn_mark is None else self.episode.call_in_turn(turn_mark, item.call)
            )
            result = await call
        except (e.InvalidParams, e.PayloadTooLarge) as error:
            # Arguments that the wire refuses, such as megabytes of text, are a mistake of the policy.
            return _policy_error(error.message), 0.0
        except e.EpisodeEnded:
            return None
        return result, time.perf_counter() - before

    def _record_step(self, call: CallItem, result: StepResult, seconds: float) -> None:
        self.items.append(OutputItem(call.call_id, result.content, error=result.error is not None))
        self._steps.append(
            {
                "step": result.step,
                "call_id": call.call_id,
                "error": result.error.code if result.error else None,
                "noise": result.noise,
                "reward": result.reward,
                "metadata": result.metadata,
                "seconds": seconds,
            }
        )
        if result.end_reason is not None:
            self._end = result

    @asynccontextmanager
    async def branch(self, count: int) -> AsyncIterator[tuple[Driver, ...]]:
        """Open `count` forks of the episode, each with a copy of the conversation; close them when the block is left.

        Raises:
            InvalidParams: the episode is done.
            Unsupported, CapacityError: as for `Episode.branch`.
        """
        at = continue_in(self.episode, self)
        async with self.episode.branch(count, self.steps) as forks:
            yield tuple(continue_in(fork, at, number) for number, fork in enumerate(forks))

    # ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def finish(self, stopped: Stop = "turn_limit") -> EpisodeOutcome:
        """Close the episode and return its outcome. A second call returns the same.

        Args:
            stopped: why the caller stops, if the episode is not done. The episode is then truncated and keeps what it
                has earned.

        Raises:
            RequestError: the request is set up wrongly, so every episode would fail.
        """
        if self._seconds is None:
            if not self._done:
                self._stopped = stopped
            if self._failure is None:
                try:
                    self._reward = await self._close()
                    self._failure = self._failure_of_end()
                except e.LudusError as error:
                    await self.fail(error)
            self._done, self._seconds = True, time.perf_counter() - self._clock
        reward = None if self._failure is not None else self._reward
        value = reward.value if reward is not None else None
        return EpisodeOutcome(
            value=value,
            reason="" if value is not None else self._reason(reward),
            components={name: part.value for name, part in reward.components.items()} if reward is not None else {},
            end_reason=self._end.end_reason if self._end is not None else None,
            stopped=self._stopped,
            failure=self._failure,
        )

    async def fail(self, error: BaseException, kind: FailureKind | None = None) -> None:
        """Record what broke, close the episode, and ask the server how it ended if the server can still say.

        Args:
            error: the exception.
            kind: the part that broke; by the exception's class when None.

        Raises:
            RequestError: `error` itself, if every episode would fail like this.
        """
        if isinstance(error, e.RequestError) and not isinstance(error, EPISODE_LOST_ERRORS) and kind is None:
            raise error
        # Before the first await: a close that is canceled must not leave an episode that looks sound.
        self._failure, self._done = failure_of(error, self.episode.id, kind), True
        await self.episode.__aexit__(type(error), error, None)
        if isinstance(error, e.EpisodeFailed | e.EpisodeEnded) and self._end is None:
            try:
                self._end = await self.episode.info()
            except e.LudusError:
                return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.episode.__aexit__(kind, error, trace)

    def trajectory(self, policy: str, *, sample: int = 0, version: str = "") -> Trajectory:
        """Return the record of the episode; before `finish`, of the episode until now.

        Args:
            policy: the policy's name.
            sample: the number of this episode among several of the same task.
            version: the environment's version.
        """
        fields = {
            "environment": self.episode.environment,
            "environment_version": version,
            "split": self.episode.task.split,
            "task": self.episode.task,
            "sample": sample,
            "policy": policy,
            "seed": self.episode.seed,
            "episode": self.episode.id,
            "group": self.episode.group,
            "branch": self._branch,
            "status": self._end.status if self._end else None,
            "end_reason": self._end.end_reason if self._end else None,
            "stopped": self._stopped,
            "reward": None if self._failure else self._reward,
            "grade": self._graded.reward if self._graded else None,
            "items": to_json(self.items),
            "tools": tool_records(self.episode.tools),
            "steps": self._steps,
            "turns": self._turns,
            "started_at": self._started_at,
            "seconds": time.perf_counter() - self._clock if self._seconds is None else self._seconds,
            "failure": self._failure,
        }
        return Trajectory.model_validate(fields)

    async def _close(self) -> Reward | None:
        try:
            self._end = info = await self.episode.close()
        except (e.Unsupported, e.Forbidden, e.MethodNotFound, e.NotFound):
            # The wire or the token does not allow the request, or the episode is gone.
            return self._total_of_steps()
        return info.reward if info.reward is not None else self._total_of_steps()

    def _total_of_steps(self) -> Reward | None:
        rewards = [step["reward"] for step in self._steps if step["reward"] is not None]
        if self._graded is not None and self._graded.reward is not None:
            rewards.append(self._graded.reward)
        return total(rewards) if rewards else None

    def _failure_of_end(self) -> Failure | None:
        reason = self._end.end_reason if self._end is not None else None
        if reason is None or self._stopped is not None:
            return None
        incident = self._end.incident if isinstance(self._end, EpisodeInfo) else None
        if EVENT_OF_REASON[reason] is Event.FAIL:
            kind: FailureKind = "environment" if reason is EndReason.ENVIRONMENT_ERROR else "infrastructure"
        # This caller did not close it (`_stopped` is not set), so what it would have earned is unknown.
        elif EVENT_OF_REASON[reason] is Event.CLOSE:
            kind = "infrastructure"
        else:
            return None
        return Failure(
            kind=kind,
            error="EpisodeFailed",
            message=f"the episode ended with {reason}",
            incident=incident,
            attempt=1,
            episode=self.episode.id,
        )

    def _reason(self, reward: Reward | None) -> str:
        if self._failure is not None:
            return f"{self._failure.kind} failure: {self._failure.message}"
        if reward is None:
            return "the environment gave no reward, or the token may not read rewards"
        return reward.reason or "the environment gave no reason"


def continue_in(episode: Episode, driver: Driver, number: int | None = None) -> Driver:
    """Return a driver of `episode` with a copy of another driver's conversation, which no longer follows that one.

    Args:
        episode: a fork of the other driver's episode in its present state; or that episode itself, to keep a copy of
            the conversation as it is now.
        driver: the other driver.
        number: the number of the fork among those of this state; None if the episode is the driver's own.

    Raises:
        InvalidParams: the other driver is done, so there is nothing to continue.
    """
    if driver._done:
        raise e.InvalidParams(f"episode {driver.episode.id} is done; branch off before its last turn")
    copy = Driver(episode, form=driver.form)
    copy.items[:] = driver.items
    copy.place, copy._branch = driver.place, driver._branch
    if number is not None:
        copy.place = f"{driver.place}/{driver.turns}.{number}".removeprefix("/")
        copy._branch = Branch(parent=driver.episode.id, step=driver.steps, turn=driver.turns, place=copy.place)
    # Copies where a list or set grows: both drivers go on independently.
    copy._results = driver._results
    copy._steps = [step | {"seconds": 0.0} for step in driver._steps]
    free = {"policy_seconds": 0.0, "environment_seconds": 0.0, "usage": None}
    copy._turns = [turn | free for turn in driver._turns]
    copy._ids.used, copy._used_ids = driver._ids.used, set(driver._used_ids)
    if driver._request is not None:
        copy._request = driver._request | {FORMATS[driver.form].CONVERSATION: list(driver.messages)}
    return copy


_Answer = tuple[StepResult, float] | None


def failure_of(error: BaseException, episode: str | None = None, kind: FailureKind | None = None) -> Failure:
    """Return the `Failure` that a trajectory records for an error."""
    if kind is None:
        kind = "environment" if isinstance(error, e.EnvironmentFailed) else "infrastructure"
    message, incident = str(error), None
    if isinstance(error, e.LudusError):
        message, incident = error.message, error.incident
    elif isinstance(error, ModuleNotFoundError) and error.name:
        message = f"{error}; install it with: pip install {error.name.partition('.')[0]}"
    return Failure(
        kind=kind,
        error=type(error).__name__,
        message=message,
        incident=incident,
        attempt=1,
        episode=episode,
    )


def _policy_error(problem: str) -> StepResult:
    """Return the observation for a call that cannot be made. It does not count as a step of the episode."""
    error = StepError(code="invalid_arguments", message=problem)
    return StepResult(step=0, content=(TextBlock(text=f"Error: {problem}"),), error=error)


def _mapping(reply: object) -> Mapping[str, Any]:
    """Return a reply as a mapping; objects of the providers' packages are pydantic models."""
    if isinstance(reply, Mapping):
        return reply
    dump = getattr(reply, "model_dump", None)
    if dump is None:
        raise e.InvalidParams(
            f"a {type(reply).__name__} is not a reply: give a mapping, a provider's object, or a text"
        )
    fields: Mapping[str, Any] = dump(mode="json", by_alias=True, exclude_none=True)
    return fields
