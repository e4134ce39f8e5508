"""Play a task with a model behind an OpenAI-shaped endpoint, for trainers that run any program against theirs.

    run = await play_task(address, "policy", base_url=base_url, api_key=api_key, adapter="areal")
    return run.scored()

ART, AReaL, rLLM and Agent Lightning start a program, give it an endpoint, and learn from the calls that it makes there.
`play_task` is such a program; docs/integrations/endpoint.md has the few lines that each system wants around it.

* The model gets its own messages back exactly as it gave them, so that a system which compares the prompts of calls
  sees that each one extends the call before it.
* A system that learns from what its endpoint has recorded would also learn from the calls of a broken episode, so an
  episode is played again only with `replay=True`. Those systems play it again themselves.
* An episode without a value leaves by an exception: `EndpointRun.scored` raises one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ludus.client import Driver, EpisodeOutcome, TaskAddress
from ludus.client.policies import OpenAIPolicy
from ludus.integrations.unscored import count, not_started, play_again
from ludus.protocol.errors import EpisodeFailed, LudusError

TURNS = 200
"""The most turns of the model, if the caller does not say."""


@dataclass(slots=True)
class EndpointRun:
    """An episode that a model behind an endpoint has played."""

    outcome: EpisodeOutcome = field(init=False)
    """How the episode ended and what it earned. A value of None must not be counted as 0."""
    replies: list[Any] = field(default_factory=list)
    """The endpoint's reply to each request as it came: a mapping, or the object that a given client has returned."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    """The conversation in OpenAI's form: the prompt, the model's messages and the observations."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    """The tools in OpenAI's form."""
    positions: list[int] = field(default_factory=list)
    """Where the message of each reply is in `messages`."""

    def scored(self) -> float:
        """Return the value of the episode.

        Raises:
            EnvironmentFailed, InfrastructureFailed: the episode is unscored because something broke.
            EpisodeFailed: the episode is unscored for another reason, such as a judge without a verdict.
        """
        if self.outcome.value is None:
            self.outcome.raise_for_failure()
            raise EpisodeFailed(f"the episode is unscored: {self.outcome.reason}")
        return self.outcome.value

    def messages_and_choices(self) -> list[Any]:
        """Return the conversation with the `Choice` of each reply instead of the model's message, as ART wants it.

        With a given client of `openai`, choices are objects of that package; else mappings.
        """
        mixed: list[Any] = list(self.messages)
        for position, reply in zip(self.positions, self.replies, strict=True):
            mixed[position] = (reply["choices"] if isinstance(reply, Mapping) else reply.choices)[0]
        return mixed


async def play_task(
    address: TaskAddress,
    model: str,
    *,
    adapter: str,
    base_url: str | None = None,
    api_key: str | None = None,
    client: Any = None,
    options: Mapping[str, Any] | None = None,
    turns: int = TURNS,
    replay: bool = False,
) -> EndpointRun:
    """Start an episode of a task, play it with a model, and close it.

    Args:
        address: the task; `TaskAddress.from_json(row["ludus"])` of a row that `ludus export` wrote.
        model: the model's name at the endpoint.
        adapter: the name under which unscored episodes are counted in `UNSCORED`.
        base_url: the endpoint's URL up to and including `/v1`, unless `client` is given.
        api_key: its key; the environment variable `OPENAI_API_KEY` when None, if it is set.
        client: an `openai.AsyncOpenAI` that makes the requests; it stays open.
        options: further fields of each request, such as `temperature`.
        turns: after how many of the model's turns the episode is stopped. It keeps what it has earned.
        replay: whether to play again if the infrastructure failed, at most twice. Only for systems that learn from the
            returned run alone: an endpoint that records has also recorded the episode that failed.

    Raises:
        ValueError: neither or both of `base_url` and `client` are given, or `base_url` is not an address.
        RequestError: every episode would fail like this, such as with a refused token or an unknown model.
    """
    if (base_url is None) == (client is None):
        raise ValueError("give the model's endpoint as either base_url=… or client=…")

    async def send(body: dict[str, Any]) -> object:
        return await client.chat.completions.create(**body)

    run = EndpointRun()
    if base_url is None:
        policy = OpenAIPolicy(model, options=options, send=send)
    else:
        policy = OpenAIPolicy(model, base_url, api_key, options=options)

    async def play() -> EpisodeOutcome:
        run.replies, run.messages, run.tools, run.positions = [], [], [], []
        try:
            async with address.drive() as driver:
                run.messages, run.tools = driver.messages, driver.tools
                return await _play(driver, policy, run, turns)
        except LudusError as error:
            return not_started(error)

    async with policy:
        run.outcome = await play_again(play, adapter) if replay else count(await play(), adapter)
    return run


async def _play(driver: Driver, policy: OpenAIPolicy, run: EndpointRun, turns: int) -> EpisodeOutcome:
    while not driver.done and len(run.replies) < turns:
        try:
            turn = await policy.complete(driver.request, driver.episode.tools)
        except LudusError as error:
            await driver.fail(error)
            break
        if turn.stopped is not None:
            return await driver.finish(turn.stopped)
        run.positions.append(len(run.messages))
        run.replies.append(turn.raw)
        await driver.act(turn.raw)
    return await driver.finish()
