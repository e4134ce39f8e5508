"""The lifecycle table: every way through it ends, and the diagram shows all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.protocol.lifecycle import (
    EVENT_OF_REASON,
    FINAL_STATUSES,
    TRANSITIONS,
    EndReason,
    EpisodeStatus,
    Event,
    advance,
    is_terminated,
    is_truncated,
    mermaid,
)


@pytest.mark.requirement("LIFE-1")
@given(st.lists(st.sampled_from(Event), max_size=6))
def test_no_sequence_of_events_leaves_a_final_status(events: list[Event]) -> None:
    status = EpisodeStatus.RUNNING
    for event in events:
        if (status, event) in TRANSITIONS:
            assert status not in FINAL_STATUSES
            status = advance(status, event)
        else:
            before = status
            with pytest.raises(ValueError, match=f"that is {before} cannot {event}"):
                advance(status, event)
            assert status is before


def test_every_status_can_be_reached_and_every_way_ends() -> None:
    reached = {EpisodeStatus.RUNNING}
    for _ in EpisodeStatus:
        reached |= {target for (source, _), target in TRANSITIONS.items() if source in reached}
    assert reached == set(EpisodeStatus)
    assert frozenset({"completed", "truncated", "failed", "closed"}) == FINAL_STATUSES


def test_an_episode_is_running_or_has_ended_and_every_event_ends_it() -> None:
    assert set(EpisodeStatus) - FINAL_STATUSES == {EpisodeStatus.RUNNING}
    assert {event: advance(EpisodeStatus.RUNNING, event) for event in Event} == {
        Event.FINISH: EpisodeStatus.COMPLETED,
        Event.LIMIT: EpisodeStatus.TRUNCATED,
        Event.FAIL: EpisodeStatus.FAILED,
        Event.CLOSE: EpisodeStatus.CLOSED,
    }


@pytest.mark.requirement("LIFE-3")
@pytest.mark.parametrize("reason", EndReason)
def test_every_end_reason_leads_to_exactly_one_final_status(reason: EndReason) -> None:
    event = EVENT_OF_REASON[reason]
    assert advance(EpisodeStatus.RUNNING, event) in FINAL_STATUSES
    assert is_terminated(reason) == (event is Event.FINISH)
    assert is_truncated(reason) == (event is Event.LIMIT)


def test_an_episode_that_runs_is_neither_terminated_nor_truncated() -> None:
    assert not is_terminated(None)
    assert not is_truncated(None)


def test_every_event_ends_an_episode_for_some_reason() -> None:
    assert set(EVENT_OF_REASON) == set(EndReason)
    assert set(EVENT_OF_REASON.values()) == set(Event)


def test_the_diagram_shows_every_transition_and_every_reason() -> None:
    diagram = mermaid()
    lines = [line.strip() for line in diagram.splitlines()]
    assert lines[0] == "stateDiagram-v2"
    assert lines[1] == "[*] --> running"
    for (source, event), target in TRANSITIONS.items():
        found = [line for line in lines if line.startswith(f"{source} --> {target} : {event}")]
        assert len(found) == 1
        assert all(reason in found[0] for reason, belongs in EVENT_OF_REASON.items() if belongs is event)
    assert {f"{status} --> [*]" for status in FINAL_STATUSES} <= set(lines)
    assert len(lines) == 2 + len(TRANSITIONS) + len(FINAL_STATUSES)
