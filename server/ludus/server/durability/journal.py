"""The interface for making episodes durable: a log of starts, calls, outcomes and ends, in order.

The host appends an entry when a group has started (`Started`), before it runs a call (`Asked`), after it (`Settled`)
and when the episode ends (`Ended`), and answers a request only when the journal says that its entries are durable. A
journal on disk thus holds all that was ever answered; `ludus.server.recovery.recovery` rebuilds the episodes from it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from ludus.protocol.content import Message
from ludus.protocol.episodes import EpisodeLimits, Outcome, ScoreGroupResult, StepError, StepResult, TurnMark
from ludus.protocol.errors import AuthoringError, InfrastructureFailed, LudusError, ShuttingDown
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import RewardEntry
from ludus.server.durability.counts import JournalStats
from ludus.server.durability.snapshot_store import SnapshotStore

T = TypeVar("T")

Sync = Literal["normal", "full"]


class JournalUnusable(AuthoringError):
    """The journal cannot be used; the message says why and what to do."""


class CallNotWritten(InfrastructureFailed):
    """A call that must be written before it runs could not be written; it did not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An episode was started; with the class's code, this is enough to start it again."""

    episode: str
    group: str
    size: int
    """The number of episodes in its group."""
    environment: str
    version: str
    """The environment's version."""
    split: str
    task: str
    """The task's id."""
    seed: int
    owner: str
    limits: EpisodeLimits
    tools: tuple[str, ...] | None
    """The tools that the start allowed; None for all."""
    prompt: tuple[Message, ...]
    key: str
    """The key of the request that started it."""
    digest: bytes
    """The digest of the request's params."""
    fork: bool = False
    """Whether the request was a fork."""
    origin: str | None = None
    """The key of the noise of the episode that it was forked from."""
    has_secrets: bool = False
    """Whether the start gave secrets, which no journal holds."""
    match: str | None = None
    """The id of its match; None if its environment has no seats."""
    seat: str | None = None
    """The seat that it plays."""
    played: tuple[str, ...] = ()
    """The seats of its match that agents have taken."""
    opponent: str | None = None
    """The strength of the scripted opponents that the start named."""
    world: str | None = None
    """The id of its world; None if it is not kept."""
    world_version: int = 0
    """The version of its world that it began with."""


# Not frozen, which would double the time to make one: there is one for every call.
@dataclass(slots=True)
class Asked:
    """A step, or a grade (`tool` is None), was accepted and will run once."""

    episode: str
    step: int
    key: str
    tool: str | None
    arguments: dict[str, Any]
    turn: TurnMark | None = None
    digest: bytes | None = None
    """The digest of large arguments of a refused call; `arguments` is then empty."""
    refused: StepError | None = None
    """The error with which the call is refused before its arguments are read."""
    ahead: bool = False
    """Whether it is written before it has an outcome: a later call may settle first, or it acts on the outside."""


# Not frozen, as `Asked`.
@dataclass(slots=True)
class Settled:
    """A call has an outcome: a result or an error."""

    episode: str
    key: str
    outcome: StepResult | LudusError
    entries: tuple[RewardEntry, ...] = ()
    """What the call added to the reward log."""
    original: StepResult | None = None
    """The tool's result, if noise changed the one in the outcome."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A snapshot of an episode's state was taken; its parts are in the store of snapshots."""

    episode: str
    step: int
    """The number of the last step before it; 0 for the state after setup."""
    parts: dict[str, str]
    """The SHA-256 of each part, by the part's name."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The episode has ended."""

    episode: str
    reason: EndReason
    incident: str | None = None
    entries: tuple[RewardEntry, ...] = ()
    """What its match added to the reward log with the end."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """The episode was closed long ago and is forgotten."""

    episode: str


@dataclass(frozen=True, slots=True)
class Scored:
    """Episodes of a group were scored against each other."""

    episode: str
    """The first of them."""
    owner: str
    key: str
    digest: bytes
    """The digest of the request's params."""
    result: ScoreGroupResult


@dataclass(frozen=True, slots=True)
class Reported:
    """Task outcomes were reported for a curriculum. The entry belongs to no episode."""

    environment: str
    split: str
    owner: str
    key: str
    digest: bytes
    """The digest of the request's params."""
    outcomes: tuple[Outcome, ...]
    episode: str = ""


@dataclass(frozen=True, slots=True)
class Tallied:
    """The sum of earlier reports about one split, in their place. The entry belongs to no episode."""

    environment: str
    split: str
    counts: dict[str, tuple[int, int]]
    """Tries and passes, by task id."""
    recorded: int
    """How many outcomes were reported."""
    keys: tuple[tuple[str, str, bytes], ...]
    """The owners, keys and digests of the latest reports."""
    episode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldVersioned:
    """A world has a new version; the first one makes the world. Its state is in the store of snapshots."""

    episode: str
    """The world's id."""
    version: int
    digest: str
    """The SHA-256 of the state."""
    size: int
    """The bytes of the state."""
    at: float
    """The Unix time."""
    by: str | None = None
    """The episode that made the version."""
    task: str | None = None
    """The task of that episode."""
    reset_to: int | None = None
    """The earlier version that a reset brought back."""
    made: WorldMade | None = None
    """What the world is, with its first version."""
    key: str | None = None
    """The key of the request that asked for a branch or a reset."""
    request: bytes = b""
    """The digest of that request's params."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldMade:
    """What a world is."""

    owner: str
    environment: str
    environment_version: str
    split: str
    tasks: str
    """What its tasks have in common: `WorldEnvironment.world_of`."""
    origin: tuple[str, int] | None = None
    """The world and the version that it is a branch of."""
    size: int = 1
    """How many branches the request made."""


@dataclass(frozen=True, slots=True)
class WorldDeleted:
    """A world was deleted."""

    episode: str
    """The world's id."""


WorldEntry = WorldVersioned | WorldDeleted

Entry = Started | Asked | Settled | Saved | Ended | Evicted | Scored | Reported | Tallied | WorldEntry

OnDurable = Callable[[LudusError | None], None]
"""Called once all earlier entries are durable, or with the error that keeps them from becoming so."""

OnBroken = Callable[[ShuttingDown], None]
"""Called once a journal will never be written again, so that its process must end."""


@dataclass(frozen=True, slots=True)
class Undone:
    """Calls of an episode that are undone, so that their entries must not be written."""

    asked: frozenset[str]
    """The keys of the calls that may be made again."""
    settled: frozenset[str]
    """The keys of the calls whose outcomes are not theirs any more."""
    upto: int
    """The number of the calls that stay; snapshots of later states are dropped."""


OnRefused = Callable[[ShuttingDown], Mapping[str, Undone]]
"""Undoes what was refused; returns by episode which entries must not be written."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry of an earlier process, with the Unix time at which it was appended."""

    at: float
    entry: Entry


# The fields of `StepRecord` that an entry needs: the runtime imports this package, so it cannot be imported here.
class SettledCall(Protocol):
    """A call that was accepted, as a journal reads it."""

    number: int
    key: str
    tool: str | None
    arguments: dict[str, Any]
    turn: TurnMark | None
    digest: bytes | None
    refused: StepError | None
    logged: tuple[RewardEntry, ...]
    original_result: StepResult | None


class Journal(Protocol):
    """A log that the host writes. Its methods are called in order, from the event loop, and must not block."""

    survives: bool
    """Whether its entries outlive the process, so that episodes go on in the next one."""

    sizes: Counter[str] | None
    """The bytes of each episode's entries, for quotas; None while nothing needs them, as counting takes time."""

    on_refused: OnRefused
    """Called when requests are refused whose entries wait, and by `undo`."""

    @property
    def refusal(self) -> ShuttingDown | None:
        """Why nothing that must be durable can be answered now; None while entries are written."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why the last attempt to write failed, for operators; None if it did not."""
        ...

    @property
    def snapshot_store(self) -> SnapshotStore | None:
        """Where snapshots of episodes are as durable as the entries; None if there is no such place."""
        ...

    @property
    def wants_asked(self) -> bool:
        """Whether it gets every call when it is accepted, and not only those that must be written ahead."""
        ...

    @property
    def syncs(self) -> bool:
        """Whether an entry is durable only once it survives the loss of power."""
        ...

    @property
    def key(self) -> bytes | None:
        """A secret key that is as durable as the entries; None if there is none."""
        ...

    def stats(self) -> JournalStats | None:
        """Return its state and counts for `/metrics`; None if it does not survive the process."""
        ...

    def open(self) -> None:
        """Prepare for all that follows; the server then is the only one that writes it. Opening twice is no error.

        Raises:
            AuthoringError: it cannot be used.
        """
        ...

    def begin(self, url: str, on_broken: OnBroken) -> None:
        """Note that the server answers now; called from its event loop.

        Args:
            url: where it listens.
            on_broken: ends the server.
        """
        ...

    def append(self, entry: Entry) -> None:
        """Append an entry."""
        ...

    def append_call(self, episode: str, call: SettledCall, outcome: StepResult | LudusError) -> bytes | None:
        """Append a call together with its outcome, and return the outcome as it is sent, if that was made."""
        ...

    def when_durable(self, callback: OnDurable) -> None:
        """Call `callback` once all entries appended so far are durable; at once if they are, or during a refusal."""
        ...

    def when_written(self, callback: OnDurable) -> None:
        """Call `callback` once all entries appended so far are durable, however long that takes."""
        ...

    def undo(self) -> None:
        """Undo what was refused since the refusal began."""
        ...

    def evict(self, episode: str) -> None:
        """Drop the episode's entries, which are no longer needed: the episode is closed."""
        ...

    def peek(self) -> Iterable[Stored]:
        """Return what a process that still writes has appended since this was called last, oldest first.

        If it fails, all is returned again, by the next call or by `stored`.

        Raises:
            AuthoringError: it cannot be read.
            OSError: likewise.
        """
        ...

    def keeps_what_was_peeked(self) -> bool:
        """Return whether what `peek` returned is still there and unchanged, once it is open; otherwise forget it."""
        ...

    def stored(self) -> Iterable[Stored]:
        """Return what earlier processes appended and `peek` did not return, oldest first.

        It is called once, before anything is appended.
        """
        ...

    def compact(self, keep: Iterable[str], instead: Iterable[Entry] = ()) -> None:
        """Drop the stored entries of all episodes except these, and replace those of no episode, all at once."""
        ...

    def close(self) -> None:
        """Write what is left, and free what the journal holds. Closing twice is no error."""
        ...


async def committed(journal: Journal | None, answer: T) -> T:
    """Return an answer when all entries of a journal so far are durable, because it may show what they hold.

    Raises:
        ShuttingDown: the journal cannot be written.
    """
    if journal is not None and journal.survives:
        # Also without entries that wait: `when_durable` of a shared database checks first that this process still owns
        # the journal, because what an answer shows may be old otherwise.
        waiter: asyncio.Future[LudusError | None] = asyncio.get_running_loop().create_future()
        journal.when_durable(partial(_resolve, waiter))
        if (error := await waiter) is not None:
            # A copy: one refusal answers many requests, and raising one object in several tasks mixes up their
            # tracebacks.
            raise ShuttingDown(error.message, **error.data)
    return answer


def check_writable(journal: Journal | None) -> None:
    """Refuse to begin what a journal must hold while it cannot be written.

    Raises:
        ShuttingDown: it cannot be written.
    """
    if journal is not None and (refusal := journal.refusal) is not None:
        # A copy, as in `committed`.
        raise ShuttingDown(refusal.message, **refusal.data)


def _resolve(waiter: asyncio.Future[LudusError | None], error: LudusError | None) -> None:
    # The request may have been canceled while it waited.
    if not waiter.done():
        waiter.set_result(error)


class MemoryJournal:
    """A journal in memory, which keeps entries until the episode is evicted or the process ends."""

    survives = False
    syncs = False
    wants_asked = True
    snapshot_store = None
    key = None
    trouble = None

    def __init__(self) -> None:
        self.sizes: Counter[str] | None = None
        self.refusal: ShuttingDown | None = None
        self.on_refused: OnRefused = lambda refusal: {}
        self._entries: dict[str, list[Entry]] = {}

    def stats(self) -> None:
        """Return None: nothing is written."""

    def open(self) -> None:
        """Do nothing."""

    def begin(self, url: str, on_broken: OnBroken) -> None:
        """Do nothing: it never breaks."""

    def append(self, entry: Entry) -> None:
        """Append an entry."""
        # No `evict` follows for a world.
        if isinstance(entry, WorldDeleted):
            self.evict(entry.episode)
            return
        self._entries.setdefault(entry.episode, []).append(entry)

    def append_call(self, episode: str, call: SettledCall, outcome: StepResult | LudusError) -> None:
        """Append the outcome of a call."""
        self.append(Settled(episode, call.key, outcome, call.logged, call.original_result))

    def when_durable(self, callback: OnDurable) -> None:
        """Call `callback` at once."""
        callback(None)

    def when_written(self, callback: OnDurable) -> None:
        """Call `callback` at once."""
        callback(None)

    def undo(self) -> None:
        """Do nothing: it never refuses."""

    def read(self, episode: str) -> Sequence[Entry]:
        """Return all entries of an episode, oldest first; empty if it is unknown."""
        # A copy, because the host appends meanwhile.
        return tuple(self._entries.get(episode, ()))

    def evict(self, episode: str) -> None:
        """Drop the episode's entries."""
        self._entries.pop(episode, None)

    def peek(self) -> Iterable[Stored]:
        """Return nothing: there is no earlier process."""
        return ()

    def keeps_what_was_peeked(self) -> bool:
        """Return True: nothing was."""
        return True

    def stored(self) -> Iterable[Stored]:
        """Return nothing: there is no earlier process."""
        return ()

    def compact(self, keep: Iterable[str], instead: Iterable[Entry] = ()) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
