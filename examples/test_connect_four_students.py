"""Tests of `connect_four_students.py`. Run with `pytest examples/test_connect_four_students.py`."""

from __future__ import annotations

import asyncio
import random

from connect_four_students import best_columns, describe_column, longest_line, read_board, student

from ludus.client import Call, Conversation, TaskRow, Turn
from ludus.environments.connect_four.board import WIDTH, Position
from ludus.protocol import text_of
from ludus.protocol.content import Message
from ludus.protocol.items import CallItem, Item, OutputItem, text_message

POSITION = """Your stones are {}, your opponent's are those of the other kind.

1 2 3 4 5 6 7
. . . . . . X
. . . . . . O
. . . . . . X
X . . . . . O
X . . . . . X
X O O . . . O
It is your move."""
DIGITS = ["41", "22", "12", "13", "11", "22", "00"]


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


def move(own: str, seed: int, *later: Item) -> tuple[str, int]:
    """Return what a student writes after the position and later items, and its column from 0."""
    task = TaskRow(id="t", split="train", index=0, fields={})
    items = (text_message("user", POSITION.format(own)), *later)
    turn = asyncio.run(student(Conversation("connect_four-easy", task, seed, 0, 1, items, (), gradable=True)))
    assert isinstance(turn, Turn)
    said, called = turn.items
    assert isinstance(said, Message)
    assert isinstance(called, CallItem)
    assert isinstance(called.call, Call)
    return text_of(said.content), called.call.arguments["column"] - 1


def test_a_student_describes_the_same_board_again_after_a_refused_move() -> None:
    call = CallItem("call_1", Call("drop", {"column": 7}))
    refused = OutputItem("call_1", text_message("user", "Column 7 is full. Choose another one.").content, error=True)
    assert move("X", 0, call, refused)[0] == f"{' '.join(DIGITS)} > 1"


def test_the_best_column_wins_or_else_blocks_or_else_extends_lines() -> None:
    assert best_columns(["21", "14", "41"], "X") == [2]
    assert best_columns(["21", "14", "41"], "O") == [1]
    assert best_columns(["21", "14", "31"], "X") == [1]
    assert best_columns(["21", "12", "00"], "O") == [0, 1]


def test_a_student_takes_the_column_that_it_names_in_one_move_of_five() -> None:
    moves = [move("X", seed) for seed in range(2_000)]
    assert {said for said, _ in moves} == {f"{' '.join(DIGITS)} > 1"}
    assert {move("O", seed)[0] for seed in range(100)} == {f"{' '.join(DIGITS)} > 1"}, "a block"
    columns = [column for _, column in moves]
    assert 0.30 < columns.count(0) / len(columns) < 0.37, "a fifth of the moves, and a sixth of the rest"
    assert 0.005 < columns.count(6) / len(columns) < 0.03, "a full column is tried now and then"
    assert set(columns) == set(range(7))
    assert [move("X", seed) for seed in range(20)] == moves[:20]
