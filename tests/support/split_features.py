"""Separate tasks of two splits by simple features, to prove that the splits are alike.

Splits that share no problem can still differ: if training never shows a pair of digits that all of validation asks for,
nothing that is learned helps there.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Collection, Sequence

from ludus.protocol import Task
from ludus.protocol.tasks import PRIVATE

Features = frozenset[str]


def features(task: Task, without: Collection[str] = ()) -> Features:
    """Return the words in a task's fields, and of its numbers the lengths, the first and last digits, and pairs of last
    digits.

    Args:
        task: the task.
        without: fields that are left out. The id always is.
    """
    found: set[str] = set()
    for name in type(task).model_fields:
        if name == "id" or name in without:
            continue
        text = str(getattr(task, name))
        numbers = re.findall(r"\d+", text)
        found.update(f"{name}: {word}" for word in re.findall(r"[^\W\d_]+", text))
        for one in numbers:
            found.update((f"{name}: {len(one)} digits", f"{name}: {one[0]}…", f"{name}: …{one[-1]}"))
        found.update(f"{name}: …{a[-1]} …{b[-1]}" for a, b in zip(numbers, numbers[1:], strict=False))
    return frozenset(found)


def separability(first: Sequence[Features], second: Sequence[Features]) -> float:
    """Return how well a naive Bayes classifier that learns from half of each kind separates the other halves.

    It is the area under the classifier's ROC curve: about 0.5 if there is nothing to tell, and at most 1.
    """
    kinds = [random.Random(1).sample(kind, len(kind)) for kind in (first, second)]
    seen = [Counter(one for task in kind[::2] for one in task) for kind in kinds]
    rates = [
        {one: (counts[one] + 1) / (len(kind[::2]) + 2) for one in seen[0] | seen[1]}
        for kind, counts in zip(kinds, seen, strict=True)
    ]
    weights = {one: math.log(rates[0][one] / rates[1][one]) for one in rates[0]}
    scores = [[sum(weights.get(one, 0.0) for one in task) for task in kind[1::2]] for kind in kinds]
    pairs = [(a > b) + (a == b) / 2 for a in scores[0] for b in scores[1]]
    return sum(pairs) / len(pairs)


def unseen(training: Sequence[Task], held_out: Sequence[Task], without: Collection[str] = ()) -> dict[str, float]:
    """Return what at least a tenth of the held-out tasks ask for and training never shows, with their share.

    It looks at the first and the last digit of every number in every field, by the number's position there, and at
    private fields with few values. A split by the digits of a number shares no task with training and is found here.

    Args:
        training: tasks of the training split.
        held_out: tasks of another split.
        without: fields that are left out. The id always is.
    """
    seen = {feature for task in training for feature in _placed(task, without)}
    known = _private_values(training)
    few = {name for name, values in known.items() if 10 * len(values) <= len(training)}
    counts: Counter[str] = Counter()
    for task in held_out:
        counts.update(feature for feature in _placed(task, without) if feature not in seen)
        counts.update(
            f"{name}: {value}" for name in few if (value := str(getattr(task, name, None))) not in known[name]
        )
    return {feature: count / len(held_out) for feature, count in counts.items() if 10 * count >= len(held_out)}


def _placed(task: Task, without: Collection[str]) -> Features:
    """Return the first and last digits of the numbers in a task's fields, with their positions."""
    found: set[str] = set()
    for name in type(task).model_fields:
        if name != "id" and name not in without:
            for place, number in enumerate(re.findall(r"\d+", str(getattr(task, name)))):
                found.update((f"{name}[{place}]: {number[0]}…", f"{name}[{place}]: …{number[-1]}"))
    return frozenset(found)


def _private_values(tasks: Sequence[Task]) -> dict[str, set[str]]:
    """Return the values of the tasks' private fields, by field."""
    values: dict[str, set[str]] = {}
    for task in tasks:
        for name, field in type(task).model_fields.items():
            if PRIVATE in field.metadata:
                values.setdefault(name, set()).add(str(getattr(task, name)))
    return values
