from __future__ import annotations

import random
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ludus.trainer.core.samples import Sample, TrainSample
from ludus.trainer.learning.packing import LINEAR, SHARED, MicroBatch, pack


def make(counts: list[bool], number: int = 0) -> TrainSample:
    """A sample whose every value shows whose it is."""
    n = len(counts)
    ids = tuple(1000 * number + i for i in range(n))
    sample = Sample(ids, tuple(counts), tuple(-float(i) for i in ids), (0,) * n, (0,) * n)
    return TrainSample(
        sample,
        tuple(float(i + 1) for i in ids),
        tuple(0.5 * (i + 1) * c for i, c in zip(ids, counts, strict=True)),
        number,
    )


def long(length: int, number: int = 0) -> TrainSample:
    """One of which `length` tokens are read: all but the first count."""
    return make([False] + [True] * length, number)


masks = st.lists(st.booleans(), max_size=20).map(lambda rest: [False, *rest])


def places(micro: MicroBatch) -> list[int]:
    """Where in the row each token of the samples is."""
    return list(range(len(micro.ids))) if micro.spread is None else micro.spread.tolist()


@given(st.lists(masks, max_size=12), st.integers(1, 40), st.integers(1, 3))
def test_every_counted_token_is_predicted_exactly_once_from_what_was_before_it(
    counts: list[list[bool]], tokens: int, multiple: int
) -> None:
    samples = [make(mask, number) for number, mask in enumerate(counts)]
    seen = []
    for micro in pack(samples, tokens, multiple=multiple):
        assert len(micro.ids) == len(micro.positions) == sum(micro.lengths)
        assert len(micro.ids) <= tokens or len(micro.lengths) == 1
        offsets = list(accumulate(micro.lengths, initial=0))
        for place, target, which, behavior, advantage, weight in zip(
            micro.index.tolist(),
            micro.targets.tolist(),
            micro.sample.tolist(),
            micro.behavior.tolist(),
            micro.advantages.tolist(),
            micro.weights.tolist(),
            strict=True,
        ):
            number = micro.samples[which]
            start = offsets[which]
            assert start <= place < offsets[which + 1]
            assert target == 1000 * number + place - start + 1
            assert (behavior, advantage, weight) == (-float(target), target + 1.0, 0.5 * (target + 1))
            assert micro.ids[start : place + 1].tolist() == list(samples[number].sample.ids[: place - start + 1])
            assert micro.positions[start : place + 1].tolist() == list(range(place - start + 1))
            seen.append(target)
    assert sorted(seen) == [i for s in samples for i, c in zip(s.sample.ids, s.sample.mask, strict=True) if c]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 5)), min_size=1, max_size=8),
    st.integers(1, 200),
)
def test_a_shared_beginning_is_in_the_row_once_and_every_sample_reads_as_it_did_alone(
    shapes: list[tuple[int, int, int]], tokens: int
) -> None:
    samples = []
    for number, (family, shared, own) in enumerate(shapes):
        ids = (*(1000 * family + i for i in range(shared)), *(100_000 * (number + 1) + i for i in range(own)), 7)
        n = len(ids)
        sample = Sample(ids, (False,) * (n - 1) + (True,), (0.0,) * n, (0,) * n, (0,) * n)
        samples.append(TrainSample(sample, (1.0,) * n, (0.0,) * (n - 1) + (1.0,), number))
    for micro in pack(samples, tokens):
        row, spread = micro.ids.tolist(), places(micro)
        offsets = list(accumulate(micro.lengths, initial=0))
        for which, (start, end) in enumerate(pairwise(offsets)):
            ids = samples[micro.samples[which]].sample.ids[:-1]
            assert tuple(row[at] for at in spread[start:end]) == ids
            assert micro.positions[spread[start:end]].tolist() == list(range(len(ids)))
            assert micro.index[which] == spread[end - 1]
        assert sorted(set(spread)) == list(range(len(row)))
        if micro.kept is not None:
            assert [spread[at] for at in micro.kept.tolist()] == list(range(len(row)))
        # What begins alike, far enough, has the tokens of the first that does.
        leaders: dict[tuple[int, ...], int] = {}
        for which, start in enumerate(offsets[:-1]):
            ids = samples[micro.samples[which]].sample.ids[:-1]
            leader = leaders.setdefault(ids[:SHARED], start)
            if len(ids) >= SHARED:
                assert spread[start] == spread[leader]


def test_nothing_is_read_after_the_last_token_that_counts() -> None:
    (micro,) = pack([make([False, True, False, True, False, False])], 100)
    assert micro.ids.tolist() == [0, 1, 2]
    assert micro.targets.tolist() == [1, 3]


def test_a_token_of_weight_zero_is_read_but_not_predicted() -> None:
    whole = make([False, True, True])
    item = TrainSample(whole.sample, whole.advantages, (0.0, 0.0, 1.0), 0)
    (micro,) = pack([item], 100)
    assert micro.ids.tolist() == [0, 1]
    assert micro.targets.tolist() == [2]


def test_a_first_token_that_counts_is_refused() -> None:
    with pytest.raises(ValueError, match="first token of a sample"):
        pack([make([True, True])], 10)


def test_what_has_no_counted_token_is_left_out() -> None:
    assert pack([make([False, False])], 10) == []
    assert pack([], 10) == []
    (micro,) = pack([make([False]), long(3, 1)], 10)
    assert micro.samples == (1,)


def test_a_sample_longer_than_the_budget_is_alone_and_whole() -> None:
    micros = pack([long(30), long(4, 1), long(4, 2)], 10)
    assert sorted(micro.lengths for micro in micros) == [(4, 4), (30,)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_rank_gets_as_many(ranks: int) -> None:
    micros = pack([long(5, i) for i in range(8)], 10, multiple=ranks)
    assert len(micros) % ranks == 0


def test_fewer_samples_than_ranks_are_one_micro_batch_each() -> None:
    assert [micro.samples for micro in pack([long(5), long(5, 1)], 100, multiple=4)] == [(0,), (1,)]


def test_work_is_balanced_and_memory_bounded() -> None:
    draw = random.Random(0)
    samples = [long(draw.randint(32, 512), i) for i in range(256)]
    micros = pack(samples, 4096)
    total = sum(sum(micro.lengths) for micro in micros)
    work = [sum(n * (n + LINEAR) for n in micro.lengths) for micro in micros]
    assert len(micros) <= total / 4096 + 2
    assert max(work) < 1.03 * sum(work) / len(work)


def test_the_same_samples_give_the_same_micro_batches() -> None:
    samples = [long(n, i) for i, n in enumerate([7, 3, 3, 9, 3, 7, 1])]
    assert [m.samples for m in pack(samples, 12)] == [m.samples for m in pack(samples, 12)]


def test_moving_keeps_everything() -> None:
    (micro,) = pack([long(3), long(2, 1)], 10)
    moved = micro.to("meta")
    for name in MicroBatch.__slots__:
        before, after = getattr(micro, name), getattr(moved, name)
        if isinstance(before, torch.Tensor):
            assert (after.device.type, after.shape, after.dtype) == ("meta", before.shape, before.dtype)
        else:
            assert after == before
