"""Requests to the model that writes: within a budget, in bounded number at once, and each paid for once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ludus.client.policies.base import Conversation, EpisodePolicy, PolicyResult, Turn, policy_name
from ludus.evaluation.config import ModelSpec
from ludus.evaluation.models import open_model
from ludus.forms.endings import read_ending
from ludus.generation.journal import Journal
from ludus.protocol.episodes import TaskRow
from ludus.protocol.errors import (
    EveryAttemptFailed,
    Forbidden,
    InvalidParams,
    LudusError,
    NotFound,
    Unauthenticated,
)
from ludus.protocol.items import Item, text_message
from ludus.protocol.trajectory import Stop, Usage

Finish = Literal["complete", "truncated", "refused"]

SAME_FAILURES: Final = 3
"""A run stops after this many requests in a row that failed, each after its retries."""

FATAL: Final = (Unauthenticated, Forbidden, NotFound, EveryAttemptFailed)
"""Errors after which no further request can succeed."""

_SORRY: Final = re.compile(
    r"\s*(I'm sorry|I am sorry|Sorry,|I can(no|'|’)t (help|assist|create|do)|I cannot|I won't)", re.I
)
_BYTES_PER_TOKEN: Final = 2.5
"""A cautious estimate, for requests that are under way and endpoints that do not count tokens."""


_ITEMS: Final = TypeAdapter(tuple[Item, ...])


class _Paid(BaseModel):
    """What a request has used, as the journal keeps it. Where the endpoint did not count, the estimates count."""

    model_config = ConfigDict(frozen=True)

    usage: Usage | None
    given: int = Field(ge=0)
    written: int = Field(ge=0)


class _PaidReply(_Paid):
    text: str
    finish: Finish
    digest: str


class _PaidTurn(_Paid):
    items: list[Any]
    stopped: Stop | None


class BudgetSpent(LudusError):
    """The budget does not allow another request. What was kept until then is kept."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a request."""

    role: Literal["system", "user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply."""

    text: str
    finish: Finish
    digest: str
    """The SHA-256 of the request, as 16 hexadecimal digits."""


@dataclass(slots=True)
class Ledger:
    """What a run has used, over all of its parts if it was resumed."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    unmetered: int = 0
    """The requests whose tokens the endpoint did not count; their estimates count toward the limits only."""
    estimated_tokens: int = 0

    def add(self, usage: Usage | None, input_estimate: int, output_estimate: int) -> None:
        """Add one request."""
        self.requests += 1
        if usage is not None:
            self.input_tokens += usage.input_tokens
            self.output_tokens += usage.output_tokens
        else:
            self.unmetered += 1
            self.estimated_tokens += input_estimate + output_estimate


@dataclass
class Budget:
    """The limits of a run, and the prices of a million tokens.

    Raises:
        InvalidParams: a limit on the cost without prices, or one price without the other.
    """

    max_tokens: int | None = None
    max_cost: float | None = None
    price_in: float | None = None
    price_out: float | None = None
    ledger: Ledger = field(default_factory=Ledger)
    _reserved: tuple[int, int] = (0, 0)
    _freed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def __post_init__(self) -> None:
        if (self.price_in is None) != (self.price_out is None):
            raise InvalidParams("--price-in and --price-out go together")
        if self.max_cost is not None and self.price_in is None:
            raise InvalidParams("--max-cost needs the prices of a million tokens: --price-in and --price-out")

    @property
    def cost(self) -> float | None:
        """What the counted tokens cost; None without prices."""
        return self._price(self.ledger.input_tokens, self.ledger.output_tokens)

    def _price(self, given: int, written: int) -> float | None:
        if self.price_in is None or self.price_out is None:
            return None
        return (given * self.price_in + written * self.price_out) / 1e6

    async def set_aside(self, given: int, written: int) -> None:
        """Set tokens aside for a request that is about to be made.

        If they might exceed a limit only because of requests that are under way, wait for those: they may use less.

        Raises:
            BudgetSpent: they might exceed a limit.
        """
        while True:
            try:
                self._reserve(given, written)
                return
            except BudgetSpent:
                if self._reserved == (0, 0):
                    raise
            self._freed.clear()
            await self._freed.wait()

    def _reserve(self, given: int, written: int) -> None:
        ledger = self.ledger
        inputs = ledger.input_tokens + self._reserved[0] + given
        outputs = ledger.output_tokens + self._reserved[1] + written
        if self.max_tokens is not None and inputs + outputs + ledger.estimated_tokens > self.max_tokens:
            raise BudgetSpent(
                f"the next request might exceed --max-tokens {self.max_tokens}: "
                f"{ledger.input_tokens + ledger.output_tokens + ledger.estimated_tokens} are used"
            )
        cost = self._price(inputs, outputs)
        if cost is not None and ledger.estimated_tokens:
            cost += self._price(0, ledger.estimated_tokens) or 0.0
        if self.max_cost is not None and cost is not None and cost > self.max_cost:
            raise BudgetSpent(
                f"the next request might exceed --max-cost {self.max_cost:g}: {self.cost or 0.0:.4f} is spent"
            )
        self._reserved = (self._reserved[0] + given, self._reserved[1] + written)

    def release(self, given: int, written: int) -> None:
        """Return what `set_aside` set aside; the use must be counted before."""
        self._reserved = (self._reserved[0] - given, self._reserved[1] - written)
        self._freed.set()


def output_option(spec: ModelSpec, tokens: int) -> dict[str, Any]:
    """Return the field of a request that limits the tokens of a reply."""
    match spec.wire:
        case "google":
            return {"generationConfig": {**spec.options.get("generationConfig", {}), "maxOutputTokens": tokens}}
        case "openai-responses":
            return {"max_output_tokens": tokens}
        case "openai" if "max_completion_tokens" in spec.options or spec.url == "https://api.openai.com/v1":
            return {"max_completion_tokens": tokens}  # OpenAI's newer models refuse the name that other servers know
        case _:
            return {"max_tokens": tokens}


class Writer:
    """A model that writes, behind the endpoint that `spec` names.

    Args:
        spec: the model.
        policy: the endpoint, from `open_model`.
        journal: keeps the replies.
        budget: the limits.
        concurrency: the most requests at the same time.
        output_tokens: the most tokens of one reply.
        seed: is part of each request's key, so that another seed asks again.
    """

    def __init__(
        self, spec: ModelSpec, policy: EpisodePolicy, journal: Journal, budget: Budget, *, concurrency: int,
        output_tokens: int, seed: int,
    ) -> None:  # fmt: skip
        self.name = spec.label
        self.failures = 0
        """The requests that failed after their retries."""
        self._policy = policy
        self._journal = journal
        self._budget = budget
        self._slots = asyncio.Semaphore(concurrency)
        self._output = output_tokens
        self._seed = seed
        self._in_a_row = 0

    async def write(self, messages: Sequence[Message], number: int, *, any_text: bool = False) -> Reply | LudusError:
        """Return the reply to a request, or the error of an endpoint that gave none.

        Args:
            messages: the request.
            number: distinguishes requests with the same text.
            any_text: whether a reply in the journal counts that was paid for under this number when the request had
                another text. For requests whose text depends on what came before, which can differ in a resumed run.

        Raises:
            BudgetSpent: the request was not made.
            Unauthenticated, Forbidden, NotFound: the endpoint refuses the key, or has no such model.
            EveryAttemptFailed: several requests in a row failed.
        """
        digest = request_digest(self.name, messages)
        key = f"{self._seed}:{number}" if any_text else f"{self._seed}:{number}:{digest}"
        given = estimate(messages)
        if (known := self._journal.get("reply", key)) is not None:
            paid = self._journal.read(_PaidReply, known)  # `count_earlier` counted it
            return Reply(paid.text, paid.finish, paid.digest)
        async with self._slots:
            await self._budget.set_aside(given, self._output)
            try:
                turn = await self._ask(messages)
            finally:
                self._budget.release(given, self._output)
            if isinstance(turn, LudusError):
                return turn
            usage = counted_usage(turn)
            self._budget.ledger.add(usage, given, self._output)
            reply = Reply(turn.text, finish_of(turn), digest)
            paid = _PaidReply(
                text=reply.text, finish=reply.finish, digest=digest, usage=usage, given=given, written=self._output
            )  # fmt: skip
            self._journal.put("reply", key, paid.model_dump(mode="json"))
            return reply

    async def _ask(self, messages: Sequence[Message]) -> Turn | LudusError:
        conversation = Conversation(
            environment="generate", task=TaskRow(id="generate", split="train", index=0, fields={}), seed=self._seed,
            sample=0, turn=1, tools=(), gradable=True,
            items=tuple(text_message(message.role, message.text) for message in messages),
        )  # fmt: skip
        try:
            turn = await self._policy(conversation)
        except (Unauthenticated, Forbidden, NotFound):
            raise
        except LudusError as error:
            self.failures += 1
            self._in_a_row += 1
            if self._in_a_row >= SAME_FAILURES:
                raise EveryAttemptFailed(
                    f"{self._in_a_row} requests to {self.name} in a row failed, the last with: {error.message}; when "
                    "it answers again, go on with --resume"
                ) from error
            return error
        self._in_a_row = 0
        assert isinstance(turn, Turn)
        return turn


class MeteredPolicy:
    """A policy of a model that plays within a budget, for calibration.

    Each turn is in the journal before it is played. In a resumed run, the same sample of the same task gets the turns
    that were paid for, as long as it sees the same.
    """

    def __init__(self, policy: Any, journal: Journal, budget: Budget, output_tokens: int) -> None:
        self.name = policy_name(policy)
        self._journal = journal
        self.spent: BudgetSpent | None = None
        """Set once a request was not made, because the budget does not allow it."""
        self._policy = policy
        self._budget = budget
        self._output = output_tokens

    async def __call__(self, conversation: Conversation) -> PolicyResult:
        """Return the policy's turn.

        Raises:
            BudgetSpent: the request was not made.
        """
        key = _turn_key(conversation)
        if (known := self._journal.get("turn", key)) is not None:
            paid = self._journal.read(_PaidTurn, known)
            return Turn(_ITEMS.validate_python(paid.items), paid.usage, paid.stopped)
        given = tokens_of("".join(map(repr, (*conversation.items, *conversation.tools))))
        try:
            await self._budget.set_aside(given, self._output)
        except BudgetSpent as error:
            self.spent = error
            raise
        try:
            result: PolicyResult = await self._policy(conversation)
        finally:
            self._budget.release(given, self._output)
        assert isinstance(result, Turn)
        usage = counted_usage(result)
        self._budget.ledger.add(usage, given, self._output)
        paid = _PaidTurn(
            items=_ITEMS.dump_python(result.items, mode="json"), stopped=result.stopped, usage=usage, given=given,
            written=self._output,
        )  # fmt: skip
        self._journal.put("turn", key, paid.model_dump(mode="json"))
        return result


@asynccontextmanager
async def open_writer(
    spec: ModelSpec, journal: Journal, budget: Budget, *, concurrency: int, output_tokens: int, seed: int
) -> AsyncIterator[Writer]:
    """Open the endpoint of a model; see `Writer`.

    Raises:
        InvalidParams: the model names no endpoint, or there is no key for it.
        ConnectionFailed: no server listens there.
    """
    limited = spec.model_copy(update={"options": {**output_option(spec, output_tokens), **spec.options}})
    async with open_model(limited) as policy:
        if not callable(policy):
            raise InvalidParams(f"{spec.model!r} keeps state, so it cannot write")
        yield Writer(spec, policy, journal, budget, concurrency=concurrency, output_tokens=output_tokens, seed=seed)


def count_earlier(journal: Journal, budget: Budget) -> None:
    """Add to a budget all that the earlier parts of a resumed run have used."""
    for value in (*journal.values("reply"), *journal.values("turn")):
        paid = journal.read(_Paid, value)
        budget.ledger.add(paid.usage, paid.given, paid.written)


def counted_usage(turn: Turn) -> Usage | None:
    """Return the tokens of a turn; None if the endpoint did not count them."""
    usage = turn.usage
    return usage if usage is not None and usage.input_tokens + usage.output_tokens else None


def request_digest(model: str, messages: Sequence[Message]) -> str:
    """Return the SHA-256 of a request, as 16 hexadecimal digits."""
    text = json.dumps([model, *([message.role, message.text] for message in messages)], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def estimate(messages: Sequence[Message]) -> int:
    """Return about how many tokens a request has; rather too many."""
    return tokens_of("".join(message.text for message in messages))


def tokens_of(text: str) -> int:
    """Return about how many tokens a text has; rather too many, also in scripts that have a token for each letter."""
    return int(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)


def finish_of(turn: Turn) -> Finish:
    """Return how a reply ended, from the fields of the endpoint's wire."""
    if turn.stopped is not None:
        return "truncated"
    raw: Any = turn.raw
    if isinstance(raw, Mapping):
        ending = read_ending(raw).ending
        if ending == "refused" or _refusal(raw):
            return "refused"
        if ending in ("limit", "context"):
            return "truncated"
    return "refused" if _SORRY.match(turn.text) and "{" not in turn.text and "<file" not in turn.text else "complete"


def _refusal(raw: Mapping[str, Any]) -> bool:
    try:
        return bool(raw["choices"][0]["message"].get("refusal"))
    except (KeyError, IndexError, TypeError, AttributeError):
        return False


def _turn_key(conversation: Conversation) -> str:
    seen = _ITEMS.dump_json(tuple(conversation.items))
    return f"{conversation.task.id}:{conversation.sample}:{hashlib.sha256(seen).hexdigest()[:32]}"
