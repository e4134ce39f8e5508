"""Tests of `connect_four_practice.py`. Run with `pytest examples/test_connect_four_practice.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from connect_four_practice import Practice, any_opening, main
from connect_four_students import best_columns, describe_column, read_board

from ludus.client import Call, read_trajectories
from ludus.environments.connect_four.board import WIDTH
from ludus.environments.connect_four.environment import ConnectFour
from ludus.environments.connect_four.openings import split_of_moves
from ludus.protocol import Task, text_of
from ludus.protocol.content import Message
from ludus.protocol.items import CallItem, OutputItem


def test_students_describe_each_board_before_they_move(tmp_path: Path) -> None:
    asyncio.run(main(32, tmp_path / "games.jsonl"))
    found = list(read_trajectories(tmp_path / "games.jsonl"))
    assert len(found) == 34, "two matches of two students, and 30 of one"
    assert len({(one.task.id, one.sample) for one in found}) == 34, "no episode hides another one"
    kind = {one.episode: int(one.task.id.removeprefix("any-")) % 16 for one in found}
    assert {len(one.turns) for one in found if kind[one.episode] > 1} == {1, 2}
    assert all(one.status == "completed" for one in found if kind[one.episode] < 2)
    assert {one.value for one in found} <= {0.0, 0.5, 1.0}
    for one in found:
        shown = None
        for item in one.items:
            if isinstance(item, CallItem):
                assert isinstance(item.call, Call)
                assert item.call.tool == ("wait" if shown is None else "drop")
            elif isinstance(item, Message) and item.role == "assistant":
                assert shown is not None
                seen, best = text_of(item.content).split(" > ")
                assert seen.split() == [describe_column(shown, n) for n in range(WIDTH)]
                assert int(best) - 1 in {*best_columns(seen.split(), "X"), *best_columns(seen.split(), "O")}
            elif isinstance(item, Message) or (isinstance(item, OutputItem) and not item.error):
                shown = read_board(text_of(item.content))


def test_practice_begins_at_positions_of_training_only() -> None:
    tasks = [any_opening(index) for index in range(300)]
    assert {split_of_moves(task.opening) for task in tasks} == {"train"}
    assert len({task.opening for task in tasks}) > 250
    assert {len(task.opening) % 2 for task in tasks} == {0}, "the first seat moves next"
    assert any_opening(7) == tasks[7]


def first_tasks(environment: type[ConnectFour], split: str) -> list[Task]:
    splits: Mapping[str, Any] = environment.splits if environment is Practice else environment.splits_of(["easy"])
    return [splits[split].get(index) for index in range(20)]


def test_practice_is_evaluated_on_the_tasks_of_the_built_in_environment() -> None:
    for split in ("validation", "test"):
        assert first_tasks(Practice, split) == first_tasks(ConnectFour, split)
    assert first_tasks(Practice, "train") != first_tasks(ConnectFour, "train")
