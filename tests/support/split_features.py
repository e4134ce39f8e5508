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
