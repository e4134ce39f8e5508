"""Gives episodes their seats at the start, and puts their calls into the order of their match."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ludus.protocol.episodes import StartParams, StepResult
from ludus.protocol.errors import EpisodeFailed, InvalidParams, Unsupported
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import RewardEntry
from ludus.server.authoring.results import read_content
from ludus.server.authoring.tools import Tool
from ludus.server.durability.journal import Ended, Journal
from ludus.server.execution import user_code
from ludus.server.matches.running_match import RunningMatch
from ludus.server.runtime.episode import Call, Episode, StepRecord
from ludus.server.tasks.catalog import Published

EndEpisode = Callable[[Episode, EndReason, EpisodeFailed | None], None]


def in_match(call: Call) -> Call:
    """Wrap a call: one call of a match at a time, and the rewards of the match with its end."""

    async def play(episode: Episode, record: StepRecord) -> StepResult:
        match = episode.match
        assert match is not None
        assert episode.seat is not None
        async with match.turn(episode.seat):
            result = await call(episode, record)
            # A final answer is not graded; what the seat gets for leaving is an entry of its own.
            return result if record.tool is None else match.conclude(episode, result)

    return play


def in_turn(call: Call) -> Call:
    """Wrap the innermost call: refuse a move that is not in turn, and end the episode with its match."""

    async def check(episode: Episode, record: StepRecord) -> StepResult:
        match = episode.match
        assert match is not None
        if match.finished:  # it ended while the call waited, so the call does not run
            content = read_content(user_code.call(episode.instance.observe))
            return StepResult(step=record.number, content=content, end_reason=EndReason.COMPLETED)
        tool = episode.tools.get(record.tool or "")
        is_move = isinstance(tool, Tool) and tool.move
        if is_move:
            episode.instance.check_move()
        result = await call(episode, record)
        if is_move and result.error is None:
            match.moves[episode.seat or ""] += 1
        if match.finished and result.end_reason is None:
            return result.model_copy(update={"end_reason": EndReason.COMPLETED})
        return result

    return check


def seats_to_start(published: Published, params: StartParams) -> tuple[str, ...]:
    """Return the seats to start in each match, in the order of the seats; empty if the environment has none.

    Raises:
        Unsupported: the environment has no seats, or no scripted opponents for the seats that are not named.
        InvalidParams: there is no such seat or strength, or a seat is named twice.
    """
    name, seats, opponents = published.name, published.seats, published.opponents
    if not seats:
        if params.seats is not None or params.opponent is not None:
            raise Unsupported(f"environment {name!r} has no seats; leave `seats` and `opponent` out", environment=name)
        return ()
    named = seats if params.seats == "all" else params.seats if params.seats is not None else seats[:1]
    unknown = [choice for choice in named if choice not in seats]
    if unknown or len(set(named)) != len(named):
        problem = f"has no seat {unknown[0]!r}" if unknown else "can start each seat only once"
        raise InvalidParams(f"`seats`: environment {name!r} {problem}; its seats are {', '.join(seats)}")
    if params.opponent is not None and params.opponent not in opponents:
        have = ", ".join(opponents) or "none"
        raise InvalidParams(f"`opponent`: environment {name!r} has no {params.opponent!r}; its opponents are {have}")
    if len(named) < len(seats) and not opponents:
        raise Unsupported(
            f"environment {name!r} has no scripted opponents; start all of its seats ({', '.join(seats)})",
            environment=name,
        )
    return tuple(seat for seat in seats if seat in named)


def take_seats(
    episodes: Sequence[Episode], seats: Sequence[str], opponent: str | None, new_id: Callable[[], str]
) -> None:
    """Give episodes their seats, match by match; nothing happens without seats."""
    for start in range(0, len(episodes), len(seats)) if seats else ():
        match = RunningMatch[Episode](new_id(), opponent)
        for seat, episode in zip(seats, episodes[start:], strict=False):
            episode.join(match, seat)


def log_reward_of_match(episode: Episode, reason: EndReason) -> tuple[RewardEntry, ...]:
    """Log what its match gives an episode that ends outside of its calls, and return it; nothing without a match."""
    entries = episode.match.ended(episode, reason) if episode.match is not None else ()
    if entries:
        episode.log(entries)
    return entries


def end_others(
    match: RunningMatch[Episode], episode: Episode, reason: EndReason, failure: EpisodeFailed | None, end: EndEpisode,
    journal: Journal | None,
) -> None:  # fmt: skip
    """End the episodes that must end now because another one of their match has."""
    for ended, end_reason, cause in match.ending(episode, reason, failure):
        end(ended, end_reason, cause)
    if journal is not None:
        for rewarded, entries in match.owed():
            journal.append(Ended(rewarded.id, EndReason.COMPLETED, None, entries))


def end_decided(episodes: Sequence[Episode], end: EndEpisode) -> None:
    """End the episodes of matches that ended in their setup, where scripted opponents may move first."""
    for episode in episodes:
        if episode.match is not None and episode.match.finished and episode.end_reason is None:
            end(episode, EndReason.COMPLETED, None)


def by_match(episodes: Sequence[Episode]) -> list[list[Episode]]:
    """Return episodes grouped by match, in the order of their seats; one without a match is alone."""
    groups: dict[object, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.id if episode.match is None else episode.match.id, []).append(episode)
    return list(groups.values())
