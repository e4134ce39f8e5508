"""Other data with which formulas are tried: some drawn at random, and some in which typical mistakes show.

Random data rarely shows that a range leaves out its first or last row, that a limit belongs to the wrong side, or that
a limit is one too high. So in some variations the ends of each table have the greatest and smallest values and
categories of their own, in one they have the values that requests name, in three all rows are at and next to such
values, in one a value is exactly the average, and in two a single row keeps a total from being 0.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from ludus.environments.spreadsheet.engine.book import Content
from ludus.environments.spreadsheet.scenes import Data, Rows, Scene, Table

DRAWN: Final = 7
"""How many variations are drawn at random; one of them has the rare cases that requests name."""
CATEGORIES: Final = ("group", "kind")
_MIDDLE: Final = 40
"""The average in the variation with such a value: more than the rows of the main table."""
_Change = Callable[[Scene, dict[str, Rows], random.Random], None]


def variation(scene: Scene, which: int, seed: int) -> Data:
    """Return one of the `VARIATIONS` of a scene's data.

    Args:
        scene: the scene.
        which: the number of the variation, from 1 on.
        seed: what it is drawn from.
    """
    if which <= DRAWN:
        return scene.variation(which, seed)
    data = {id: [list(row) for row in rows] for id, rows in scene.variation(which, seed).items()}
    _SPECIAL[which - DRAWN - 1](scene, data, random.Random(f"{seed}:special:{which}"))
    return data


def _tables(scene: Scene) -> Iterator[Table]:
    """Yield the tables with rows of one kind, and no lists of inputs."""
    return (table for table in scene.tables.values() if table.columns[0].role != "label" and len(table.rows) > 2)


def _is_number(value: Content) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _first_greatest(scene: Scene, data: dict[str, Rows], rng: random.Random) -> None:
    _spread_ends(scene, data, greatest=0, smallest=-1)


def _first_smallest(scene: Scene, data: dict[str, Rows], rng: random.Random) -> None:
    _spread_ends(scene, data, greatest=-1, smallest=0)


def _spread_ends(scene: Scene, data: dict[str, Rows], greatest: int, smallest: int) -> None:
    """Give two rows of each table the greatest and smallest numbers, and categories that no other row has."""
    for table in _tables(scene):
        rows = data[table.id]
        for at, column in enumerate(table.columns):
            numbers = [value for row in rows if isinstance(value := row[at], (int, float))]
            if column.draw is None:
                continue
            if numbers and all(_is_number(row[at]) for row in rows):
                low = min(numbers)
                for row in rows:
                    row[at] = _raised(row[at], 2)
                rows[greatest][at], rows[smallest][at] = max(numbers) + 4, low
            elif column.role in CATEGORIES:
                items = scene.domain.groups if column.role == "group" else scene.domain.kinds
                for place, row in enumerate(rows):
                    row[at] = items[2 + place % (len(items) - 2)]
                rows[greatest][at], rows[smallest][at] = items[0], items[1]
    for look_up in scene.looked_up:
        look_up(data, greatest)


def _raised(value: Content, amount: float) -> Content:
    return round(value + amount, 2) if isinstance(value, (int, float)) else value


def _ends_named(scene: Scene, data: dict[str, Rows], rng: random.Random) -> None:
    """Give the first and last rows values that requests name."""
    for table in _tables(scene):
        rows = data[table.id]
        for at, column in enumerate(table.columns):
            hot = scene.hot.get((table.id, column.role), [])
            if hot and column.draw is not None:
                rows[0][at], rows[-1][at] = hot[-1], hot[0]


def _next_to_named(turn: int) -> _Change:
    """Return a change that gives rows values that requests name and the next ones, each with each category in turn."""

    def change(scene: Scene, data: dict[str, Rows], rng: random.Random) -> None:
        for table in _tables(scene):
            rows = data[table.id]
            named = {
                at: [near for value in scene.hot.get((table.id, column.role), []) for near in _neighbors(value)]
                for at, column in enumerate(table.columns)
                if column.draw is not None and column.role not in CATEGORIES
            }
            widest = max(map(len, named.values()), default=0)
            if not widest:
                continue
            for step, row in enumerate(rows, turn * len(rows)):
                for at, column in enumerate(table.columns):
                    if named.get(at):
                        row[at] = named[at][step % len(named[at])]
                    elif column.role in CATEGORIES and column.draw is not None:
                        items = scene.domain.groups if column.role == "group" else scene.domain.kinds
                        row[at] = items[step // widest % len(items)]

    return change


def _neighbors(value: Content) -> list[Content]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return [value]
    step = 1 if isinstance(value, int) or value == int(value) else 0.01
    return [value, round(value + step, 2), max(0, round(value - step, 2))]


def _at_average(scene: Scene, data: dict[str, Rows], rng: random.Random) -> None:
    """Give columns of the main table whole numbers of which one or two are exactly their average, and greater ends."""
    rows = data["main"]
    offsets = [0] if len(rows) % 2 else [0, 0]
    for distance in range(1, (len(rows) - len(offsets)) // 2 + 1):
        offsets += [distance, -distance]
    for at, column in enumerate(scene.main.columns):
        if column.draw is not None and column.role != "date" and all(_is_number(row[at]) for row in rows):
            ends = rng.sample([offset for offset in offsets if offset > 0], 2)
            inner = [offset for offset in offsets if offset not in ends]
            rng.shuffle(inner)
            for row, offset in zip(rows, [ends[0], *inner, ends[1]], strict=True):
                row[at] = _MIDDLE + offset


def _only_one(place: int) -> _Change:
    """Return a change that makes columns 0 except in one row, where requests name a total of 0."""

    def change(scene: Scene, data: dict[str, Rows], rng: random.Random) -> None:
        for id, role in scene.zeroed:
            at = scene.tables[id].index(role)
            value = next((row[at] for row in data[id] if row[at]), 1)
            for row in data[id]:
                row[at] = 0
            data[id][place][at] = value

    return change


_SPECIAL: Final[tuple[_Change, ...]] = (
    _first_greatest, _first_smallest, _ends_named, _next_to_named(0), _next_to_named(1), _next_to_named(2), _at_average,
    _only_one(0), _only_one(-1),
)  # fmt: skip
VARIATIONS: Final = DRAWN + len(_SPECIAL)
"""How many variations of the data are tried."""

__all__ = ["VARIATIONS", "variation"]
