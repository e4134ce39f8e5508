"""Write a generator: a source of numbers and stages that they pass, without an end or over a list."""

from __future__ import annotations

import random
from typing import Any

from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty


def sources(rng: random.Random) -> list[Rule]:
    """Return sources; the name begins with the parameters, and the code is a generator function `source`."""
    a, b, m = rng.randint(1, 3), rng.randint(1, 4), rng.choice((10, 11, 13))
    return [
        Rule("start: int, step: int|count", "the numbers start, start + step, start + 2 × step, and so on, without end",
             "number = start\nwhile True:\n    yield number\n    number += step"),
        Rule("a: int, b: int|sum", f"a, then b, and then without end {a} times the last number plus the one before it, "
             f"modulo 1000", f"while True:\n    yield a\n    a, b = b, ({a} * b + a) % 1000"),
        Rule("numbers: list[int]|cycle", "the numbers of the list, again and again from its start, without end (nothing, "
             "if the list is empty)", "while numbers:\n    yield from numbers"),
        Rule("numbers: list[int]|list", "the numbers of the list, in order", "yield from numbers"),
        Rule("start: int, step: int|swing", "start, start + step, start - step, start + 2 × step, start - 2 × step, and "
             "so on, without end",
             "yield start\ndistance = step\nwhile True:\n    yield start + distance\n    yield start - distance\n"
             "    distance += step"),
        Rule("start: int, step: int|mixed", f"start, and then without end the last number times {b + 1} plus step, "
             f"modulo {m * 7}", f"number = start\nwhile True:\n    yield number\n    number = (number * {b + 1} + step) % {m * 7}"),
        Rule("a: int, b: int|between", "the integers from a to b, both included; downward, if a is greater than b",
             "yield from range(a, b + 1) if a <= b else range(a, b - 1, -1)"),
    ]  # fmt: skip


def stages(rng: random.Random) -> list[Rule]:
    """Return stages; the code is the body of a generator function of `numbers`."""
    k, r, limit = rng.randint(2, 4), rng.randint(0, 1), rng.randint(5, 9)
    m = k + 1  # has no divisor in common with k, so that `keep` after `scale` passes something on
    loop = "for number in numbers:\n"
    return [
        Rule("keep", f"passes on the numbers that leave the remainder {r} when divided by {m}",
             f"{loop}    if number % {m} == {r}:\n        yield number"),
        Rule("drop", f"passes on the numbers that are not divisible by {m + 1}",
             f"{loop}    if number % {m + 1} != 0:\n        yield number"),
        Rule("scale", f"passes on each number times {k} plus {r + 1}", f"{loop}    yield number * {k} + {r + 1}"),
        Rule("last-digits", f"passes on each number modulo {limit + 4}", f"{loop}    yield number % {limit + 4}"),
        Rule("changes", "passes on each number that differs from the one before it (and the first number)",
             f"first, last = True, 0\n{loop}    if first or number != last:\n        yield number\n"
             "    first, last = False, number"),
        Rule("new", "passes on each number that did not reach this stage before",
             f"seen = set()\n{loop}    if number not in seen:\n        yield number\n    seen.add(number)"),
        Rule("totals", "passes on, for each number, the sum of all numbers so far, this one included",
             f"total = 0\n{loop}    total += number\n    yield total"),
        Rule("differences", "passes on, for each number but the first, this number minus the one before it",
             f"first, last = True, 0\n{loop}    if not first:\n        yield number - last\n    first, last = False, number"),
        Rule("skip", f"drops the first {k} numbers and passes on the others",
             f"count = 0\n{loop}    count += 1\n    if count > {k}:\n        yield number"),
        Rule("every", f"passes on every {k}{'nd' if k == 2 else 'rd' if k == 3 else 'th'} number, beginning with the first",
             f"count = 0\n{loop}    if count % {k} == 0:\n        yield number\n    count += 1"),
        Rule("chunks", f"passes on the sum of each {k} numbers: the first {k}, the next {k}, and so on; if fewer than {k} "
             "are left at the end, their sum is not passed on",
             f"group = []\n{loop}    group.append(number)\n    if len(group) == {k}:\n        yield sum(group)\n"
             "        group = []"),
        Rule("double", "passes on each number twice if it is even, and once if it is odd",
             f"{loop}    yield number\n    if number % 2 == 0:\n        yield number"),
        Rule("window", f"passes on, for each number from the {k}{'nd' if k == 2 else 'rd' if k == 3 else 'th'} on, the "
             f"greatest of the last {k} numbers, this one included",
             f"window = []\n{loop}    window = (window + [number])[-{k}:]\n    if len(window) == {k}:\n"
             "        yield max(window)"),
        Rule("record", "passes on each number that is greater than all numbers before it (and the first number)",
             f"best = None\n{loop}    if best is None or number > best:\n        best = number\n        yield number"),
        Rule("digits", "passes on the decimal digits of each number as single numbers, without its sign",
             f"{loop}    for digit in str(abs(number)):\n        yield int(digit)"),
        Rule("alternate", "passes on the numbers with alternating change: the first as it is, the second with the opposite "
             "sign, the third as it is, and so on",
             f"sign = 1\n{loop}    yield sign * number\n    sign = -sign"),
    ]  # fmt: skip


_ENDLESS_TROUBLE = frozenset(("new", "record", "keep", "drop", "changes"))
"""Stages that may wait without end for a number to pass on, so they only follow sources that end."""


_SHORTENING = frozenset(("keep", "new", "every", "chunks", "window", "record", "skip", "changes"))
"""Stages that pass on fewer numbers than reach them."""


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    source = rng.choice(sources(rng)[:4] if difficulty == "easy" else sources(rng))
    parameters, _, kind = source.name.partition("|")
    finite = kind in ("list", "between")
    pool = [rule for rule in stages(rng) if finite or rule.name not in _ENDLESS_TROUBLE]
    if kind in ("count", "swing", "between"):  # their differences are known in advance
        pool = [rule for rule in pool if rule.name != "differences"]
    counts = {"easy": (1, 2), "medium": (2, 3), "hard": (4, 5)}[difficulty]
    chosen = pick_distinct(rng, pool, *counts)
    while sum(rule.name in _SHORTENING for rule in chosen) > 2:  # otherwise, nothing may be left
        chosen = pick_distinct(rng, pool, *counts)
    stop = Rule("none", "", "") if difficulty == "easy" else rng.choice((
        Rule("none", "", ""),
        Rule("after", "The generator ends before the first number that is divisible by 17 and not 0.",
             "for number in numbers:\n    if number % 17 == 0 and number != 0:\n        return\n    yield number"),
        Rule("repeat", "The generator ends after the first number that equals the one yielded before it.",
             "last = None\nfor number in numbers:\n    yield number\n    if number == last:\n        return\n"
             "    last = number"),
    ))  # fmt: skip
    name = rng.choice(("stream", "produce", "generate", "flow", "emit"))
    signature = f"def {name}({parameters}):"
    arguments = ", ".join(one.partition(":")[0] for one in parameters.split(", "))
    helpers = [function_source(f"def source({arguments}):", source.code).strip()]
    calls = f"numbers = source({arguments})"
    for rule in (*chosen, *([stop] if stop.code else [])):
        helper = "stop_" * (rule is stop) + rule.name.replace("-", "_")
        helpers.append(function_source(f"def {helper}(numbers):", rule.code).strip())
        calls += f"\nnumbers = {helper}(numbers)"

    def sample(rng: random.Random, size: int) -> tuple[tuple[Any, ...], int]:
        count = (6, 12, 60)[size]
        if "list" in parameters:
            numbers = [rng.randint(-9, 40) for _ in range(rng.randint(*((5, 8), (12, 24), (80, 120))[size]))]
            if kind == "cycle":
                numbers = numbers[: rng.randint(3, 7)]
            if len(numbers) > 4:
                numbers[3] = numbers[2]
            return ((numbers,), count)
        if kind == "between":
            low = rng.randint(-20, 20)
            return ((low, low + rng.choice((-1, 1)) * rng.randint(15, 40 if size < 2 else 200)), count)
        return ((rng.randint(-9, 30), rng.randint(1, 12)), count)

    edges: tuple[Any, ...] = (
        ((([],), 5), (([4],), 5), (([6, 6, 3],), 5)) if "list" in parameters else (((0, 1), 4), ((5, 3), 4))
    )
    rules = (
        f"Begin with {source.text}.",
        *(f"Stage {number} {rule.text}." for number, rule in enumerate(chosen, 1)),
        *([stop.text] if stop.text else []),
    )
    return Problem(
        key=key_of("iterators", kind, *chosen, stop), entry=name, signature=signature,
        intro="Write a generator function (with `yield`). Numbers pass these stages one after the other, and what leaves "
        "the last stage is yielded. Each number must be yielded as soon as the numbers before it were taken; only some of "
        "the first ones are taken.",
        rules=rules,
        reference=function_source(signature, calls, "yield from numbers",
                                  imports="\n\n\n".join(helpers)),
        edges=edges, sample=sample, kind="iterator",
    )  # fmt: skip
