"""Connect Four: its rules, its openings, its opponents, and a game between two agents."""

from __future__ import annotations

import itertools
import random
import textwrap
from importlib import resources
from typing import Any

import pytest

from ludus.environments.connect_four import ConnectFour
from ludus.environments.connect_four.board import (
    Position,
    best_columns,
    canonical,
    choose,
    forced_win,
    position_after,
)
from ludus.environments.connect_four.environment import LEVELS, ConnectFourMatch, ConnectFourTask
from ludus.environments.connect_four.openings import COUNTS, PLIES, find_openings, openings
from ludus.protocol import EndReason, text_of
from ludus.protocol import episodes as e
from ludus.server.authoring.partition import SplitType, split_of
from ludus.server.authoring.procedural import SECRET_VARIABLE

NAME = "connect_four"


def cells_of(moves: str) -> dict[tuple[int, int], str]:
    """The board after some moves, by plain rules."""
    cells: dict[tuple[int, int], str] = {}
    for number, move in enumerate(moves):
        column = int(move) - 1
        row = sum(place[0] == column for place in cells)
        cells[column, row] = "XO"[number % 2]
    return cells


def has_four(cells: dict[tuple[int, int], str], stone: str) -> bool:
    """Whether there are four of a kind in a row, by plain rules."""
    for column, row in cells:
        for across, up in ((1, 0), (0, 1), (1, 1), (1, -1)):
            if all(cells.get((column + n * across, row + n * up)) == stone for n in range(4)):
                return True
    return False


def test_the_board_follows_the_plain_rules() -> None:
    rng = random.Random(1)
    wins = 0
    for _ in range(300):
        position, moves = Position(), ""
        while (columns := [column for column in range(7) if position.can_drop(column)]) and not position.full:
            column = rng.choice(columns)
            won = position.wins(column)
            position, moves = position.drop(column), moves + str(column + 1)
            cells = cells_of(moves)
            assert has_four(cells, "XO"[(len(moves) - 1) % 2]) == won
            own, other = ("X", "O") if len(moves) % 2 == 0 else ("O", "X")
            drawn = position.rows(own, other)
            assert [line.split() for line in drawn] == [
                [cells.get((column, row), ".") for column in range(7)] for row in reversed(range(6))
            ]
            if won:
                wins += 1
                break
    assert wins > 200


def test_a_secret_gives_other_test_openings_with_other_ids_and_the_same_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def tasks(split: SplitType) -> list[ConnectFourTask]:
        return [ConnectFour.load_task(split, index, ("easy", "medium")) for index in range(20)]

    public = {split: tasks(split) for split in ("train", "validation", "test")}
    boards = {canonical(task.opening) for found in public.values() for task in found}
    monkeypatch.setenv(SECRET_VARIABLE, "no one knows this")
    fresh = tasks("test")
    assert tasks("test") == fresh, "the same secret gives the same tasks"
    assert {task.id for task in fresh}.isdisjoint(task.id for task in public["test"])
    assert not any("no one" in task.id for task in fresh)
    assert len({canonical(task.opening) for task in fresh}) == 20
    assert boards.isdisjoint(canonical(task.opening) for task in fresh)
    for task in fresh:
        assert split_of(f"connect_four:{canonical(task.opening)}") == "test"
        assert forced_win(position_after(task.opening), task.win_in) is not None
        assert forced_win(position_after(task.opening), task.win_in - 2) is None
    assert tasks("train") == public["train"]
    assert tasks("validation") == public["validation"]
    monkeypatch.setenv(SECRET_VARIABLE, "another")
    assert {task.id for task in tasks("test")}.isdisjoint(task.id for task in fresh)


def plain_value(position: Position, column: int, depth: int) -> int:
    """What a move is worth, by search that leaves nothing out."""
    if position.wins(column):
        return 100
    after = position.drop(column)
    if depth <= 1 or after.full:
        return 0
    value = max(plain_value(after, reply, depth - 1) for reply in after.columns())
    return -(value - (value > 0) + (value < 0))


def test_search_chooses_what_a_search_without_shortcuts_chooses() -> None:
    for moves in openings("train", 5)[:25]:
        position = position_after(moves)
        for depth in (1, 2, 3, 4):
            values = {column: plain_value(position, column, depth) for column in position.columns()}
            assert best_columns(position, depth) == [one for one in values if values[one] == max(values.values())]


@pytest.mark.parametrize("plies", PLIES)
def test_every_opening_is_won_in_as_many_moves_as_its_task_says_and_no_fewer(plies: int) -> None:
    for split in COUNTS:
        assert len(openings(split, plies)) == COUNTS[split]
    for moves in openings("test", plies)[:20]:
        assert not any(has_four(cells_of(moves), stone) for stone in "XO")
        assert forced_win(position_after(moves), plies) is not None
        assert forced_win(position_after(moves), plies - 2) is None


def test_the_file_of_openings_is_what_the_search_finds() -> None:
    found = list(itertools.islice(find_openings(), 12))
    kept = [(plies, moves) for plies in PLIES for split in COUNTS for moves in openings(split, plies)]
    assert set(found) <= set(kept)


def test_a_greedy_opponent_completes_its_line_and_blocks_another() -> None:
    rng = random.Random(1)
    assert choose(position_after("112233"), "greedy", rng) == 3
    assert choose(position_after("1122337"), "greedy", rng) == 3


@pytest.mark.parametrize("opponent", ["random", "greedy", "minimax-4"])
async def test_the_oracle_beats_every_opponent(player: Any, opponent: str) -> None:
    for index in range(6):
        params = e.StartParams(
            environment=NAME, split="train", index=index, seed=index, seats=("first",), opponent=opponent,
            key=f"{opponent}-{index}",
        )  # fmt: skip
        (episode,) = (await player.host.start(params, player.principal)).episodes
        results = await player.play(episode.episode, player.oracle(NAME, "train", index))
        assert "You win" in text_of(results[-1].content)
        assert len(results) <= (player.task(NAME, "train", index).win_in + 1) // 2


def test_levels_take_turns() -> None:
    tasks = [ConnectFour.load_task("train", index, ("easy", "medium", "hard")) for index in range(6)]
    assert [task.opponent for task in tasks] == [level.opponent for level in LEVELS.values()] * 2


LAST_BOARD = """\
1 2 3 4 5 6 7
. . . . . . .
. . . . . . .
. . . . . . X
. . . O . . O
. O . X X X X
. O . X O X O"""


async def test_two_agents_play_a_golden_game(player: Any) -> None:
    params = e.StartParams(environment=NAME, split="train", index=0, seed=1, seats="all", key="golden")
    first, second = (await player.host.start(params, player.principal)).episodes
    assert player.task(NAME, "train", 0).opening == "6777454272"
    assert [tool.name for tool in first.tools] == ["drop", "wait"]
    prompts = [text_of(one.prompt[-1].content) for one in (first, second)]
    assert [text.splitlines()[0] for text in prompts] == [
        "You play Connect Four. Your stones are X, your opponent's are O.",
        "You play Connect Four. Your stones are O, your opponent's are X.",
    ]
    assert [text.splitlines()[-1] for text in prompts] == ["It is your move.", "It is your opponent's move."]
    seen = [
        await player.step(one.episode, tool, **arguments)
        for one, tool, arguments in (
            (first, "drop", {"column": 5}), (second, "wait", {}), (second, "drop", {"column": 4}),
            (first, "wait", {}), (first, "drop", {"column": 6}),
        )
    ]  # fmt: skip
    texts = [text_of(result.content) for result in seen]
    assert texts[0] == texts[2] == "It is your opponent's move."
    assert texts[1].startswith("X dropped into column 5.\n1 2 3 4 5 6 7\n")
    assert texts[1].endswith("It is your move.")
    assert texts[3].startswith("X dropped into column 5.\nO dropped into column 4.\n1 2 3 4 5 6 7\n")
    assert texts[4] == f"X dropped into column 6.\n{LAST_BOARD}\nYou win."
    assert (seen[-1].end_reason, seen[-1].reward.value) == (EndReason.COMPLETED, 1.0)
    infos = [await player.info(one.episode) for one in (first, second)]
    assert [info.reward.value for info in infos] == [1.0, 0.0]


async def test_a_full_column_is_refused_and_costs_a_step_but_no_move(player: Any) -> None:
    boards = ((index, position_after(player.task(NAME, "train", index).opening)) for index in range(1200))
    index, board = next((index, board) for index, board in boards if len(board.columns()) < 7)
    full = next(column for column in range(7) if not board.can_drop(column))
    [episode] = await player.start(NAME, "train", index)
    refused = await player.step(episode.episode, "drop", column=full + 1)
    assert refused.error.code == "refused"
    assert (await player.info(episode.episode)).steps == 1
    seen = text_of((await player.step(episode.episode, "drop", column=board.columns()[0] + 1)).content)
    assert seen.startswith(f"X dropped into column {board.columns()[0] + 1}.\n")


async def test_the_readme_shows_a_move_as_it_is(player: Any) -> None:
    params = e.StartParams(environment=NAME, split="train", index=0, seed=1, seats=("first",), key="readme")
    (episode,) = (await player.host.start(params, player.principal)).episodes
    seen = text_of((await player.step(episode.episode, "drop", column=4)).content)
    readme = (resources.files("ludus.environments.connect_four") / "README.md").read_text()
    assert textwrap.indent(seen, "  ") in readme


def test_a_full_board_is_a_draw() -> None:
    match = ConnectFourMatch()
    match.task, match.seed, match.played = ConnectFour.load_task("train", 0, ("easy",)), 1, frozenset(match.seats)
    match.setup()
    match.position = _almost_full(random.Random(0))
    (column,) = match.position.columns()
    match.drop("second", column)
    assert match.rewards is not None
    assert {seat: reward.value for seat, reward in match.rewards.items()} == {"first": 0.5, "second": 0.5}


def _almost_full(rng: random.Random) -> Position:
    """A board with room for one stone, which makes no line."""
    while True:
        position = Position()
        for left in range(42, 0, -1):
            columns = [column for column in position.columns() if not position.wins(column)]
            if not columns:
                break
            if left == 1:
                return position
            position = position.drop(rng.choice(columns))
