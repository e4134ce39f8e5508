"""The staleness window, without any rollouts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.trainer.core.samples import RolloutGroup
from ludus.trainer.rollouts.buffer import StalenessWindow


def group(number: int, version: int) -> RolloutGroup:
    return RolloutGroup(number, "e", "t", (), version)


def numbers(groups: list[RolloutGroup] | None) -> list[int] | None:
    return None if groups is None else [one.number for one in groups]


def test_the_worked_example_of_the_docstring() -> None:
    window = StalenessWindow(groups=2, staleness=1)
    assert window.room == 0
    window.on_weights_updated(0)
    assert window.room == 4
    for number in range(4):
        assert window.start(number) == 0
    assert window.room == 0
    for number in (3, 2):
        window.finish(group(number, 0))
    assert numbers(window.pop_batch()) == [2, 3]
    assert window.room == 0
    window.on_weights_updated(1)
    assert window.room == 2
    for number in (4, 5):
        assert window.start(number) == 1
        window.finish(group(number, 1))
    assert window.pop_batch() is None
    window.finish(group(0, 0))
    assert window.pop_batch() is None
    window.finish(group(1, 0))
    assert numbers(window.pop_batch()) == [0, 1]
    window.on_weights_updated(2)
    assert window.room == 2


def test_slots_of_a_batch_are_free_only_when_the_engine_holds_its_weights() -> None:
    window = StalenessWindow(groups=1, staleness=0)
    window.on_weights_updated(0)
    window.start(0)
    window.finish(group(0, 0))
    assert numbers(window.pop_batch()) == [0]
    assert window.room == 0
    window.on_weights_updated(0)
    assert window.room == 0
    window.on_weights_updated(1)
    assert window.room == 1


def test_a_dropped_group_frees_its_slot_at_once() -> None:
    window = StalenessWindow(groups=2, staleness=0)
    window.on_weights_updated(0)
    window.start(0)
    window.start(1)
    window.drop(0)
    assert window.room == 1


@settings(max_examples=200, deadline=None)
@given(
    groups=st.integers(1, 4),
    staleness=st.integers(0, 3),
    events=st.lists(st.tuples(st.sampled_from(["finish", "drop", "cut", "sync"]), st.integers(0, 10**6)), max_size=300),
)
def test_whatever_happens_no_group_is_too_old_and_a_batch_can_always_be_had(
    groups: int, staleness: int, events: list[tuple[str, int]]
) -> None:
    window = StalenessWindow(groups, staleness)
    window.on_weights_updated(0)
    versions: dict[int, int] = {}
    running: list[int] = []
    learned: list[int] = []
    dropped: list[int] = []

    def fill() -> None:
        while window.room > 0:
            number = len(versions)
            versions[number] = window.start(number)
            running.append(number)

    def cut() -> bool:
        batch = window.batches
        chosen = window.pop_batch()
        for one in chosen or ():
            assert 0 <= batch - versions[one.number] <= staleness
            assert one.number not in learned
            learned.append(one.number)
        assert chosen is None or len(chosen) == groups
        return chosen is not None

    fill()
    for event, which in events:
        if event == "finish" and running:
            number = running.pop(which % len(running))
            window.finish(group(number, versions[number]))
        elif event == "drop" and running:
            dropped.append(running.pop(which % len(running)))
            window.drop(dropped[-1])
        elif event == "cut":
            cut()
        elif event == "sync":
            window.on_weights_updated(min(window.batches, window.version + 1))
        fill()
        held = len(versions) - len(dropped) - window.version * groups
        assert held <= (staleness + 1) * groups
    for _ in range(3):
        window.on_weights_updated(window.batches)
        fill()
        for number in running:
            window.finish(group(number, versions[number]))
        running.clear()
        assert cut()
