"""Tests of `connect_four_students.py`. Run with `pytest examples/test_connect_four_students.py`."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from connect_four_students import any_opening, describe_column, longest_line, main, read_board

from ludus.client import Call, read_trajectories
from ludus.environments.connect_four.board import WIDTH, Position
from ludus.environments.connect_four.openings import split_of_moves
from ludus.protocol import text_of
from ludus.protocol.content import Message
from ludus.protocol.items import CallItem, OutputItem


def test_the_digits_say_what_wins_and_what_must_be_blocked() -> None:
    rng = random.Random(1)
    seen = set()
    for _ in range(300):
        position = Position()
        for _ in range(rng.randrange(30)):
            column = rng.choice(position.columns())
            if position.wins(column):
                break
            position = position.drop(column)
        board = read_board("1 2 3 4 5 6 7\n" + "\n".join(position.rows("X", "O")) + "\nIt is your move.")
        assert board is not None
        other = Position(position.own ^ position.mask, position.mask)
        for column in range(WIDTH):
            digits = describe_column(board, column)
            seen.add(digits)
            if position.can_drop(column):
                assert [digit == "4" for digit in digits] == [position.wins(column), other.wins(column)]
            else:
                assert digits == "00"
    assert len(seen) == 17


def test_a_line_is_counted_on_both_sides_of_the_cell() -> None:
    board = ["X", "X", "", "X", "X", "O", "OO"]
    assert longest_line(board, "X", 2, 0) == 4
    assert longest_line(board, "X", 3, 2) == 1
    assert longest_line(board, "O", 4, 1) == 2, "the diagonal"
    assert longest_line(board, "O", 6, 2) == 3


def test_students_describe_each_board_before_they_move_from_both_seats(tmp_path: Path) -> None:
    asyncio.run(main(4, tmp_path / "games.jsonl"))
    found = list(read_trajectories(tmp_path / "games.jsonl"))
    assert len(found) == 6, "two matches of two students, and two of one"
    assert len({(one.task.id, one.sample) for one in found}) == 6, "no episode hides another one"
    assert {one.value for one in found} <= {0.0, 0.5, 1.0}
    for one in found:
        shown = None
        for item in one.items:
            if isinstance(item, CallItem):
                assert isinstance(item.call, Call)
                assert item.call.tool == ("wait" if shown is None else "drop")
                shown = None
            elif isinstance(item, Message) and item.role == "assistant":
                assert shown is not None
                assert text_of(item.content).split() == [describe_column(shown, n) for n in range(WIDTH)]
            elif isinstance(item, Message | OutputItem):
                shown = read_board(text_of(item.content))


def test_students_meet_positions_of_training_only() -> None:
    tasks = [any_opening(index) for index in range(300)]
    assert {split_of_moves(task.opening) for task in tasks} == {"train"}
    assert len({task.opening for task in tasks}) > 250
    assert {len(task.opening) % 2 for task in tasks} == {0}, "the first seat moves next"
    assert any_opening(7) == tasks[7]
