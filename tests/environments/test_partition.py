"""How places of a sequence become problems of a split."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.environments.arithmetic import Arithmetic
from ludus.server.authoring.partition import SPLITS, place_of, scattered


@given(count=st.integers(1, 500))
def test_a_scattered_sequence_has_each_number_once(count: int) -> None:
    assert sorted(scattered(place, count) for place in range(count)) == list(range(count))


@pytest.mark.parametrize("count", [88_200, 166_650])
def test_no_remainder_of_a_number_shows_its_split(count: int) -> None:
    for split in SPLITS:
        places = range(count // 10 * (8 if split == "train" else 1))
        numbers = [scattered(place_of(split, index), count) for index in places]
        for modulus in (2, 3, 5, 7, 10, 49):
            remainders = Counter(number % modulus for number in numbers)
            expected = len(numbers) / modulus
            assert len(remainders) == modulus
            assert all(abs(found - expected) < 6 * expected**0.5 for found in remainders.values()), (split, modulus)


def test_training_shows_each_pair_of_last_digits_and_so_does_what_is_held_out() -> None:
    def pairs(expressions: list[str]) -> set[tuple[str, ...]]:
        return {tuple(number[-1] for number in re.findall(r"\d+", text)) for text in expressions}

    assert len(pairs([Arithmetic.load_task("train", index, ["easy"]).expression for index in range(2_000)])) == 100
    for split in ("validation", "test"):
        assert len(pairs([task.expression for task in Arithmetic.load_tasks(split, ["easy"])])) > 90
