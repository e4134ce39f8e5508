"""The choice of sources: shares, stages, learning progress, resuming, results that come late or not at all."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.client.mix import Mixer, MixPolicy, Source, learning, record, simulate
from ludus.protocol.errors import InvalidParams

PROGRESS: dict[str, Any] = {"kind": "progress"}
BAND: dict[str, Any] = {"kind": "band"}
THREE = (Source("a"), Source("b", 2.0), Source("c", 1.0))
ADAPTIVE: list[dict[str, Any]] = [BAND, PROGRESS, {"kind": "stages", "stages": {"min_groups": 2, "until": 0.5}}]
STAGED = (Source("easy"), Source("medium", stage=2), Source("hard", stage=3))


@pytest.fixture(autouse=True, scope="module")
def short_spans() -> Iterator[None]:
    """Let shares follow the results of fewer groups than in real runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "FAST", 8.0)
        patch.setattr(record, "SLOW", 32.0)
        yield


def policy(**values: Any) -> MixPolicy:
    return MixPolicy.model_validate(values)


def mixer(sources: tuple[Source, ...], *, lag: int | None = None, **values: Any) -> Mixer:
    return Mixer(sources, policy(**values), lag=lag)


def play(mix: Mixer, rates: Mapping[str, float], numbers: range, *, seed: int = 0, size: int = 8) -> list[str]:
    """Draw and report groups one after the other; the policy passes with these rates."""
    drawn = []
    for number in numbers:
        label = mix.choose(number, random.Random(f"{seed}/{number}"))
        rng = random.Random(f"{seed}/{number}/episodes")
        mix.report(number, label, passes=sum(rng.random() < rates[label] for _ in range(size)), scored=size)
        drawn.append(label)
    return drawn


# ── shares ──────────────────────────────────────────────────────────────────────────────────────────────────────────

results = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 8), st.integers(0, 8)), max_size=120)


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from(["fixed", "stages", "band", "progress"]),
    weights=st.lists(st.floats(0.01, 100), min_size=3, max_size=3),
    floor=st.floats(0, 1),
    back=st.booleans(),
    results=results,
)
def test_shares_add_up_to_1_and_keep_the_floor_whatever_was_reported(
    kind: str, weights: list[float], floor: float, back: bool, results: list[tuple[int, int, int]]
) -> None:
    sources = tuple(Source(f"s{at}", weight, at + 1) for at, weight in enumerate(weights))
    values: dict[str, Any] = {
        "stages": {"min_groups": 2, "until": 0.5, "back_below": 0.3 if back else None},
        "band": {"floor": floor},
        "progress": {"floor": floor},
    }
    mix = mixer(sources, kind=kind, **values)
    for number, (_, passes, scored) in enumerate(results):
        label = mix.choose(number, random.Random(number))
        mix.report(number, label, passes=min(passes, scored), scored=scored, unscored=8 - scored)
        shares = mix.shares()
        assert math.isclose(sum(shares.values()), 1, abs_tol=1e-9)
        assert all(share >= 0 for share in shares.values())
        if kind in ("band", "progress"):
            base = {source.label: source.weight / sum(weights) for source in sources}
            assert all(shares[one] >= floor * base[one] - 1e-12 for one in base)


def test_fixed_shares_are_those_of_the_weights() -> None:
    mix = mixer(THREE)
    assert mix.shares() == {"a": 0.25, "b": 0.5, "c": 0.25}
    drawn = Counter(play(mix, {"a": 1, "b": 0, "c": 0.5}, range(2000)))
    assert drawn["b"] / 2000 == pytest.approx(0.5, abs=0.05)
    assert mix.shares() == {"a": 0.25, "b": 0.5, "c": 0.25}


def test_a_band_prefers_the_source_that_is_sometimes_solved() -> None:
    mix = mixer(THREE, **BAND)
    play(mix, {"a": 0.5, "b": 1.0, "c": 0.0}, range(200))
    shares = mix.shares()
    assert shares["a"] > 0.8
    assert shares["b"] == pytest.approx(0.2 * 0.5, abs=0.02)
    assert shares["c"] == pytest.approx(0.2 * 0.25, abs=0.02)


# ── learning progress ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(5))
def test_progress_prefers_the_source_that_is_being_learned_and_the_others_fall_to_their_floor(seed: int) -> None:
    sources = (Source("learned"), Source("solved"), Source("impossible"))
    learners = {"learned": learning(240), "solved": lambda _: 1.0, "impossible": lambda _: 0.0}
    moments = simulate(sources, policy(**PROGRESS), learners, groups=600, seed=seed)
    floor = 0.2 / 3
    learned = [moment.shares["learned"] for moment in moments[120:260]]
    assert sum(learned) / len(learned) > 0.75, "the source that is being learned"
    clear = [moment for moment in moments if moment.shares["learned"] > 1 - 2 * floor - 1e-9]
    assert len(clear) > 100
    assert all(moment.shares["solved"] == moment.shares["impossible"] == pytest.approx(floor) for moment in clear)
    assert moments[-1].shares == pytest.approx(dict.fromkeys(learners, 1 / 3), abs=0.02), (
        "nothing is being learned any more"
    )


@pytest.mark.parametrize("seed", range(3))
def test_progress_goes_on_to_the_next_source_when_one_is_solved(seed: int) -> None:
    sources = (Source("first"), Source("second"))
    done: dict[str, int] = {"first": 0}

    def first(played: int) -> float:
        done["first"] = played
        return learning(60)(played)

    def second(played: int) -> float:
        """Can be learned only after the first one."""
        return 0.0 if done["first"] < 60 else learning(100)(played)

    learners = {"first": first, "second": second}
    moments = simulate(sources, policy(**PROGRESS), learners, groups=600, seed=seed)
    best = {label: max(range(len(moments)), key=lambda at: moments[at].shares[label]) for label in learners}
    assert max(moment.shares["first"] for moment in moments[:150]) > 0.8
    assert max(moment.shares["second"] for moment in moments[60:]) > 0.75
    assert best["first"] < best["second"]


def test_a_source_that_is_being_forgotten_is_played_more() -> None:
    mix = mixer((Source("lost"), Source("kept")), **PROGRESS)
    play(mix, {"lost": 1.0, "kept": 1.0}, range(100))
    assert mix.shares() == {"lost": 0.5, "kept": 0.5}
    play(mix, {"lost": 0.0, "kept": 1.0}, range(100, 112))
    assert mix.shares()["lost"] > 0.85


def test_chance_alone_is_little_progress() -> None:
    """A source of coin flips must not take over from one that is learned."""
    learners = {"coin": lambda _: 0.5, "learned": learning(150)}
    moments = simulate((Source("coin"), Source("learned")), policy(**PROGRESS), learners, groups=150)
    late = moments[50:151]
    assert sum(moment.shares["learned"] for moment in late) / len(late) > 0.6


def test_an_unknown_source_keeps_its_base_share_until_it_was_tried() -> None:
    mix = mixer((Source("old"), Source("new", 3.0)), **PROGRESS)
    for number in range(40):
        mix.choose(number, Fixed("old"))
        mix.report(number, "old", passes=number % 9, scored=8)
    assert mix.shares()["new"] == pytest.approx(0.75)


class Fixed(random.Random):
    """Randomness that always draws the same source."""

    def __init__(self, label: str) -> None:
        super().__init__(0)
        self._label = label

    def choices(self, population: Any, *args: Any, **options: Any) -> list[Any]:
        return [self._label]


# ── stages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=30, deadline=None)
@given(results=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=150))
def test_stages_never_go_back_unless_that_is_declared(results: list[tuple[int, int]]) -> None:
    mix = mixer(STAGED, kind="stages", stages={"min_groups": 1, "until": 0.2})
    seen = [mix.stage]
    for number, (passes, scored) in enumerate(results):
        label = mix.choose(number, random.Random(number))
        mix.report(number, label, passes=min(passes, scored), scored=scored)
        seen.append(mix.stage)
    assert seen == sorted(seen)
    assert all(after - before <= 1 for before, after in itertools.pairwise(seen))


def test_a_stage_ends_when_the_lower_bound_passes_and_not_when_the_mean_does() -> None:
    stages = {"min_groups": 4, "until": 0.8, "rehearsal": 0.25}
    mix = mixer(STAGED, kind="stages", stages=stages)
    assert mix.shares() == {"easy": 1.0, "medium": 0.0, "hard": 0.0}
    play(mix, {"easy": 1.0}, range(4))
    assert mix.stage == 1, "four groups that pass are too few to be sure of 80 %"
    play(mix, {"easy": 1.0, "medium": 0.0}, range(4, 16))
    assert mix.stage == 2
    assert mix.shares() == {"easy": 0.25, "medium": 0.75, "hard": 0.0}
    assert mix.news() == ["stage 2 of the mix begins with group 11: every source of stage 1 reached 0.8"]
    assert mix.news() == []


def test_every_source_of_a_stage_must_pass() -> None:
    sources = (Source("a"), Source("b"), Source("c", stage=2))
    mix = mixer(sources, kind="stages")
    play(mix, {"a": 1.0, "b": 0.3, "c": 0.0}, range(100))
    assert mix.stage == 1
    play(mix, {"a": 1.0, "b": 1.0, "c": 0.0}, range(100, 260))
    assert mix.stage == 2


def test_a_declared_return_follows_when_an_earlier_stage_is_forgotten() -> None:
    stages = {"min_groups": 8, "rehearsal": 0.5, "back_below": 0.4}
    mix = mixer(STAGED, kind="stages", stages=stages)
    play(mix, {"easy": 1.0, "medium": 0.0}, range(40))
    assert mix.stage == 2
    play(mix, {"easy": 0.0, "medium": 0.0}, range(40, 140))
    assert mix.stage == 1
    assert "easy fell below 0.4" in mix.news()[-1]


def test_groups_drawn_before_a_stage_do_not_decide_about_it() -> None:
    stages = {"min_groups": 12, "until": 0.8, "rehearsal": 0.5, "back_below": 0.5}
    mix = mixer(STAGED, kind="stages", stages=stages)
    labels = [mix.choose(number, random.Random(number)) for number in range(60)]
    assert set(labels) == {"easy"}
    for number in range(12):
        mix.report(number, "easy", passes=8, scored=8)
    assert mix.stage == 2
    for number in range(12, 60):  # they were drawn before the stage began, and come late
        mix.report(number, "easy", passes=0, scored=8)
    assert mix.stage == 2
    assert not mix.records["easy"].recent


# ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("values", ADAPTIVE)
def test_unscored_episodes_are_no_failures(values: dict[str, Any]) -> None:
    plain, broken = mixer(STAGED, **values), mixer(STAGED, **values)
    for number in range(60):
        for mix, lost in ((plain, 0), (broken, 5)):
            label = mix.choose(number, random.Random(number))
            mix.report(number, label, passes=min(3, number % 4), scored=3, unscored=lost)
    assert plain.shares() == broken.shares()
    before = broken.shares()
    for number in range(60, 90):
        label = broken.choose(number, random.Random(number))
        broken.report(number, label, passes=0, scored=0, unscored=8)
    assert broken.shares() == before
    assert sum(record.unscored for record in broken.records.values()) == 60 * 5 + 30 * 8
    assert sum(record.episodes for record in broken.records.values()) == 60 * 3


@pytest.mark.parametrize("values", ADAPTIVE)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_choices_do_not_depend_on_the_order_in_which_results_arrive(values: dict[str, Any], order: int) -> None:
    shuffle = random.Random(order)
    assert late(values, lambda waiting: shuffle.randrange(len(waiting))) == late(values, lambda waiting: 0)


def late(values: dict[str, Any], pick: Callable[[Sequence[int]], int]) -> list[str]:
    """Draw groups of which six are open, and report one that `pick` chooses whenever the next draw needs it."""
    mix, waiting, drawn = mixer(STAGED, lag=6, **values), list[int](), list[str]()
    for number in range(200):
        while len(waiting) >= 6 or not mix.ready(number):
            report_one(mix, waiting.pop(pick(waiting)), drawn)
        drawn.append(mix.choose(number, random.Random(number)))
        waiting.append(number)
    return drawn


def report_one(mix: Mixer, number: int, drawn: Sequence[str]) -> None:
    passes = random.Random(f"{number}/{drawn[number]}").randint(0, 8)
    mix.report(number, drawn[number], passes=passes, scored=8)


@pytest.mark.parametrize("values", ADAPTIVE)
@pytest.mark.parametrize("stop", [0, 7, 50, 111])
def test_a_resumed_mix_goes_on_as_if_it_had_not_stopped(values: dict[str, Any], stop: int) -> None:
    def run(*, resume: bool) -> tuple[list[str], dict[str, float]]:
        mix, drawn = mixer(STAGED, lag=6, **values), list[str]()
        for number in range(150):
            if resume and number == stop:
                state = json.loads(json.dumps(mix.state()))
                mix = mixer(STAGED, lag=6, **values)
                mix.load_state(state)
                for again in range(max(0, number - 8), number):  # open groups run again, and some were counted already
                    report_one(mix, again, drawn)
            drawn.append(mix.choose(number, random.Random(number)))
            if number >= 4:
                report_one(mix, number - 4, drawn)
        return drawn, mix.shares()

    assert run(resume=True) == run(resume=False)


def test_a_second_report_of_a_group_is_ignored() -> None:
    mix = mixer(THREE, **BAND)
    label = mix.choose(0, random.Random(0))
    for _ in range(3):
        mix.report(0, label, passes=8, scored=8)
    mix.report(99, label, passes=8, scored=8)
    assert mix.records[label].groups == 1


def test_a_choice_that_was_not_reported_is_kept_through_a_resume() -> None:
    mix = mixer(THREE, lag=2, **PROGRESS)
    first = [mix.choose(number, random.Random(number)) for number in range(3)]
    again = mixer(THREE, lag=2, **PROGRESS)
    again.load_state(json.loads(json.dumps(mix.state())))
    assert [again.choose(number, random.Random(100 + number)) for number in range(3)] == first
    assert not again.ready(3)


def test_a_source_that_is_gone_or_new_does_not_stop_a_resume() -> None:
    mix = mixer(STAGED, kind="stages")
    play(mix, {"easy": 1.0, "medium": 1.0, "hard": 0.0}, range(120))
    assert mix.stage == 3
    other = mixer((Source("easy"), Source("other", stage=2)), kind="stages")
    other.load_state(mix.state())
    assert other.stage == 2
    assert other.records["easy"].groups == mix.records["easy"].groups
    assert other.records["other"].groups == 0


def test_metrics_name_every_source() -> None:
    mix = mixer(THREE, **PROGRESS)
    play(mix, {"a": 0.5, "b": 1.0, "c": 0.0}, range(60))
    metrics = mix.metrics()
    assert {name.split("/")[1] for name in metrics} == {"a", "b", "c"}
    assert sum(metrics[f"mix/{label}/share"] for label in "abc") == pytest.approx(1)
    assert sum(metrics[f"mix/{label}/groups"] for label in "abc") == 60
    assert metrics["mix/b/pass_rate"] == 1.0
    assert mixer((Source("only"),)).metrics() == {}


@pytest.mark.parametrize(
    ("sources", "values", "what"),
    [
        ((), {}, "label of its own"),
        ((Source("a"), Source("a")), {}, "label of its own"),
        ((Source("a"), Source("b")), {"kind": "stages"}, "at least two stages"),
        ((Source("a"), Source("b", stage=3)), {"kind": "stages"}, "1, 3"),
    ],
)
def test_impossible_mixes_are_refused(sources: tuple[Source, ...], values: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidParams, match=what):
        mixer(sources, **values)
