"""Merge, count, cut and measure intervals."""

from __future__ import annotations

import random
from typing import Final

from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty

STORIES: Final = (
    ("bookings", "bookings of a room"), ("shifts", "shifts of a worker"), ("spans", "parts of a text that are marked"),
    ("outages", "outages of a service"), ("slots", "free slots of a calendar"), ("ranges", "ranges of pages"),
)  # fmt: skip
MERGE: Final = """\
merged = []
for start, end in sorted(intervals):
    if merged and start <= merged[-1][1]{slack}:
        merged[-1][1] = max(merged[-1][1], end)
    else:
        merged.append([start, end])
intervals = merged"""


def before(rng: random.Random, one: int) -> list[Rule]:
    """Return rules that prepare the intervals; `one` is 1 if ends are included, else 0."""
    low, high, least, by = rng.randint(0, 6), rng.randint(24, 34), rng.randint(2, 4), rng.randint(1, 3)
    size = "end - start" + " + 1" * one
    upper = f"above {high}" if one else f"from {high} on"
    return [
        Rule("clip", f"Cut off the integers below {low} and {upper}; intervals of which nothing is left are removed.",
             f"intervals = [[max(start, {low}), min(end, {high})] for start, end in intervals]\n"
             f"intervals = [[start, end] for start, end in intervals if {size} > 0]"),
        Rule("drop-short", f"Remove the intervals that hold fewer than {least} integers.",
             f"intervals = [[start, end] for start, end in intervals if {size} >= {least}]"),
        Rule("extend", f"Make each interval longer by {by} at its end.",
             f"intervals = [[start, end + {by}] for start, end in intervals]"),
        Rule("unique", "Of equal intervals, keep one.",
             "kept = []\nfor one in intervals:\n    if one not in kept:\n        kept.append(one)\nintervals = kept"),
        Rule("outer", "Remove each interval that lies within another one that is longer.",
             "intervals = [[a, b] for a, b in intervals\n"
             "             if not any(c <= a and b <= d and d - c > b - a for c, d in intervals)]"),
        Rule("odd", "Remove the intervals that hold an even number of integers.",
             f"intervals = [[start, end] for start, end in intervals if ({size}) % 2 == 1]"),
    ]  # fmt: skip


def core(rng: random.Random, one: int) -> list[Rule]:
    """Return what is computed: lists of intervals, which `after` goes on with."""
    gap, k = rng.randint(2, 3), rng.randint(2, 3)
    stop = "end + 1" if one else "end"
    points = f"counts = {{}}\nfor start, end in intervals:\n    for point in range(start, {stop}):\n"
    points += "        counts[point] = counts.get(point, 0) + 1\n"
    regroup = (
        "result = []\nfor point in sorted(found):\n"
        f"    if result and result[-1][1] == point{' - 1' * one}:\n        result[-1][1] = point{' + 1' * (1 - one)}\n"
        f"    else:\n        result.append([point, point{' + 1' * (1 - one)}])\nintervals = result"
    )
    touch = " + 1" if one else ""
    return [
        Rule("merge", "Merge intervals that have an integer in common or follow each other without an integer between "
             "them, until there are none.", MERGE.format(slack=touch)),
        Rule("merge-gap", f"Merge intervals if fewer than {gap} integers lie between them, also if they overlap, until "
             "there are none.", MERGE.format(slack=f" + {gap - 1 + one}")),
        Rule("at-least", f"Find the integers that belong to at least {k} of the intervals, and go on with the longest "
             "possible intervals that hold exactly these.",
             f"{points}found = [point for point, count in counts.items() if count >= {k}]\n{regroup}"),
        Rule("exactly", f"Find the integers that belong to exactly {k - 1} of the intervals, and go on with the "
             "longest possible intervals that hold exactly these.",
             f"{points}found = [point for point, count in counts.items() if count == {k - 1}]\n{regroup}"),
        Rule("gaps", "Go on with the gaps instead: the longest possible intervals of integers that lie between two of "
             "the intervals and belong to none.",
             f"{points}found = [point for point in range(min(counts), max(counts)) if point not in counts]"
             f" if counts else []\n{regroup}"),
        Rule("disjoint", "Choose as many intervals as possible that have no integer in common: again and again, take "
             "the one that ends first (of several, the one that starts last) among those that start after the "
             "intervals taken before.",
             "taken = []\nfor start, end in sorted(intervals, key=lambda one: (one[1], -one[0])):\n"
             f"    if not taken or start >{'' if one else '='} taken[-1][1]:\n        taken.append([start, end])\n"
             "intervals = taken"),
    ]  # fmt: skip


def after(rng: random.Random, one: int) -> list[Rule]:
    """Return the forms of the result."""
    k, m = rng.randint(2, 3), rng.randint(2, 4)
    size = "end - start" + " + 1" * one
    return [
        Rule("list[list[int]]:sorted", "Return the intervals, sorted by start and then by end.",
             "return sorted(intervals)"),
        Rule("int:total", "Return how many integers the intervals hold; those in several of them count several times.",
             f"return sum({size} for start, end in intervals)"),
        Rule("list[list[int]]:by-length", "Return the intervals, the longest first; of equal length, the one that "
             "starts first.",
             "return sorted(intervals, key=lambda one: (one[0] - one[1], one[0]))"),
        Rule("list[int]:lengths", "Sort the intervals by start and then by end, and return how many integers each "
             "holds.", f"return [{size} for start, end in sorted(intervals)]"),
        Rule("list[list[int]]:some", f"Return the {k} longest intervals (of equal length, those that start first), "
             "sorted by start.",
             f"longest = sorted(intervals, key=lambda one: (one[0] - one[1], one[0]))[:{k}]\nreturn sorted(longest)"),
        Rule("list[int]:points", f"Return the integers in the intervals that are divisible by {m}, each once, in "
             "increasing order.",
             f"return sorted({{point for start, end in intervals for point in range(start, end{' + 1' * one})\n"
             f"               if point % {m} == 0}})"),
        Rule("str:text", 'Return a text such as "3-7, 9-12" of the intervals, sorted by start and then by end (an '
             "empty text if there are none).",
             'return ", ".join(f"{start}-{end}" for start, end in sorted(intervals))'),
    ]  # fmt: skip


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    one = rng.randint(0, 1)
    word, story = rng.choice(STORIES)
    counts = {"easy": (0, 1), "medium": (1, 2), "hard": (2, 4)}[difficulty]
    prepared = pick_distinct(rng, before(rng, one), *counts)
    cores = pick_distinct(rng, core(rng, one), 1, 2 if difficulty == "hard" else 1)
    if cores[-1].name == "gaps" and {"clip", "drop-short", "odd"} & {rule.name for rule in prepared}:
        prepared = [rule for rule in prepared if rule.name not in ("clip", "drop-short", "odd")]
    if len(cores) == 2:  # the second of two works on few intervals, so only merging makes sense there
        cores = [next(rule for rule in cores if rule.name not in ("merge", "merge-gap", "gaps"))] if any(
            rule.name not in ("merge", "merge-gap", "gaps") for rule in cores) else cores[:1]  # fmt: skip
        cores.append(rng.choice(core(rng, one)[:2]))
    finish = rng.choice(after(rng, one)[: 4 if difficulty == "easy" else 7])
    if difficulty == "hard" and finish.name == "int:total":  # few intervals are left, so many results would be equal
        finish = after(rng, one)[0]
    name = f"{rng.choice(('combine', 'plan', 'arrange', 'summarize', 'reduce'))}_{word}"
    signature = f"def {name}(intervals: list[list[int]]) -> {finish.name.partition(':')[0]}:"
    meaning = "with start <= end and holds the integers from start to end, both included" if one else (
        "with start < end and holds the integers from start to end without end itself"
    )  # fmt: skip

    def sample(rng: random.Random, size: int) -> tuple[list[list[int]]]:
        found = []
        for _ in range(rng.randint(*((5, 7), (8, 13), (40, 60))[size])):
            start = rng.randint(0, (20, 30, 150)[size])
            found.append([start, start + rng.randint(1 - one, rng.choice((4, 9)))])
        if rng.random() < 0.4:
            found.append(list(rng.choice(found)))
        return (found,)

    return Problem(
        key=key_of("intervals", *prepared, *cores, finish),
        entry=name,
        signature=signature,
        intro=f"The list has {story}. Each is an interval [start, end] {meaning}. The intervals are in no particular "
        "order and may overlap. Follow these rules in order:",
        rules=tuple(rule.text for rule in (*prepared, *cores, finish)),
        reference=function_source(signature, *(rule.code for rule in (*prepared, *cores)), finish.code),
        edges=(([],), ([[8, 20]],), ([[8, 12], [12, 17], [13, 20]],), ([[8, 20], [9, 21], [14, 17], [8, 20]],)),
        sample=sample,
    )
