"""Random choices that cost little."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ludus.server.authoring.dice import QuickRandom

a_size = st.integers(1, 40)


@given(seed=st.integers(0, 2**64 - 1), sizes=st.lists(st.tuples(a_size, st.integers(0, 7)), max_size=6))
def test_the_quick_generator_draws_what_the_usual_one_draws(seed: int, sizes: list[tuple[int, int]]) -> None:
    quick, usual = QuickRandom(seed), random.Random(seed)
    for count, size in sizes:
        values, some = list("abcdefgh" * 5)[:count], min(count, size)
        assert quick.below(count) == usual.randrange(count)
        assert quick.choice(values) == usual.choice(values)
        assert quick.randint(-count, size) == usual.randint(-count, size)
        assert quick.indices(count, some) == usual.sample(range(count), some)
        assert quick.some(values, some) == usual.sample(values, some)
        assert quick.sample(values, some) == usual.sample(values, some)
        assert quick.random() == usual.random()
        assert quick.gauss(0, 1) == usual.gauss(0, 1)
        mixed = [list(values), list(values)]
        quick.shuffle(mixed[0])
        usual.shuffle(mixed[1])
        assert mixed[0] == mixed[1]
