"""The tree: what each node makes of its checks, and that nothing unscored ever counts as 0."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.protocol import Reward
from ludus.protocol.errors import AuthoringError
from ludus.server.rewards import (
    Attempt,
    Cap,
    Check,
    EachStep,
    Gate,
    Penalty,
    Rubric,
    Sequential,
    TakenStep,
    Verdict,
    Weighted,
    WeightedSum,
    check,
)
from ludus.server.rewards.nodes import Node


def says(value: float | None, name: str, **options: Any) -> Check:
    found = Verdict.unscored("the judge was down") if value is None else Verdict(value, f"{name} is {value}")
    return check(lambda attempt: found, name=name, **options)


def later(value: float | None, name: str, **options: Any) -> Check:
    async def find(attempt: Attempt) -> Verdict:
        await asyncio.sleep(0)
        return Verdict.unscored("the judge was down") if value is None else Verdict(value)

    return check(find, name=name, **options)


def counting(asked: list[Attempt], name: str) -> Check:
    def find(attempt: Attempt) -> float:
        asked.append(attempt)
        return 1.0

    return check(find, name=name)


async def score(*nodes: Node) -> Reward:
    return await Rubric(next(iter(nodes)) if len(nodes) == 1 else nodes).score(Attempt("x"))


async def test_a_group_is_the_mean_of_its_checks_by_weight() -> None:
    reward = await score(says(1.0, "a", weight=3.0), says(0.0, "b"))
    assert reward.value == 0.75
    assert {name: (c.value, c.weight) for name, c in reward.components.items()} == {"a": (1.0, 0.75), "b": (0.0, 0.25)}
    assert reward.components["a"].evidence == "a is 1.0"


async def test_a_total_adds_values_times_weights_of_either_sign() -> None:
    reward = await score(WeightedSum([says(1.0, "a", weight=3.0), says(2.0, "b", weight=-0.5)]))
    assert reward.value == 2.0


@pytest.mark.parametrize("make", [says, later])
async def test_an_unscored_check_makes_the_rubric_unscored_and_what_was_scored_is_still_reported(
    make: Callable[..., Check],
) -> None:
    reward = await score(make(1.0, "a"), make(None, "b"))
    assert (reward.value, reward.reason) == (None, "b: the judge was down")
    assert reward.components["a"].value == 1.0
    assert reward.missing == {"b": "the judge was down"}


@pytest.mark.requirement("REW-13")
@pytest.mark.parametrize("make", [says, later])
async def test_an_optional_unscored_check_leaves_the_mean_to_the_others(make: Callable[..., Check]) -> None:
    reward = await score(make(1.0, "a"), make(0.5, "c"), make(None, "b", optional=True, weight=9.0))
    assert reward.value == 0.75
    assert {name: part.weight for name, part in reward.components.items()} == {"a": 0.5, "c": 0.5}
    assert reward.missing == {"b": "the judge was down"}


async def test_a_group_of_which_nothing_could_be_judged_is_unscored_even_if_all_was_optional() -> None:
    reward = await score(says(None, "a", optional=True), says(None, "b", optional=True))
    assert reward.value is None
    assert reward.reason == "none of its checks could be judged"


async def test_a_metric_is_reported_and_counts_in_nothing_even_when_unscored() -> None:
    reward = await score(says(1.0, "a"), says(7.0, "length", weight=0.0), says(None, "cost", weight=0.0))
    assert reward.value == 1.0
    assert reward.components["length"].weight == 0.0
    assert "cost" in reward.missing


async def test_a_closed_gate_gives_nothing_and_does_not_ask_what_it_guards() -> None:
    asked: list[Attempt] = []
    guarded = counting(asked, "guarded")
    reward = await score(Gate(says(0.5, "safe"), guarded))
    assert (reward.value, asked) == (0.0, [])
    assert reward.components["guarded"].evidence == "closed: safe is 0.5, below 1"
    assert (await score(Gate(says(0.5, "safe"), guarded, at_least=0.5))).value == 1.0


async def test_a_gate_whose_condition_cannot_be_judged_is_unscored() -> None:
    reward = await score(Gate(says(None, "safe"), says(1.0, "guarded")))
    assert reward.value is None
    assert reward.reason == "the gate's condition: the judge was down"


async def test_a_sequence_stops_at_the_first_failure_and_the_rest_counts_0() -> None:
    asked: list[Attempt] = []
    last = counting(asked, "third")
    reward = await score(Sequential([says(1.0, "first"), says(0.0, "second"), last]))
    assert reward.value == pytest.approx(1 / 3)
    assert asked == []
    assert reward.components["third"].evidence == "not reached: second failed"


async def test_a_sequence_stops_unscored_where_a_check_cannot_be_judged() -> None:
    reward = await score(Sequential([says(1.0, "first"), says(None, "second"), says(1.0, "third")]))
    assert reward.value is None
    assert reward.missing == {"second": "the judge was down", "third": "not reached"}


async def test_a_cap_holds_the_value_down_only_when_its_condition_is_met() -> None:
    child = says(0.9, "a")
    assert (await score(Cap(child, at_most=0.5))).value == 0.5
    assert (await score(Cap(child, at_most=0.5, when=says(0.0, "leaked")))).value == 0.9
    assert (await score(Cap(child, at_most=0.5, when=says(1.0, "leaked")))).value == 0.5
    assert (await score(Cap(child, at_most=0.5, when=says(None, "leaked")))).value is None


async def test_a_penalty_takes_away_without_a_share_in_the_mean_and_not_below_the_floor() -> None:
    reward = await score(says(1.0, "a"), Penalty(says(1.0, "rude"), amount=0.25))
    assert (reward.value, reward.components["rude"].weight) == (0.75, -0.25)
    floored = await score(says(0.0, "a"), Penalty(says(1.0, "rude"), amount=0.25))
    assert floored.value == 0.0
    assert floored.components["floor"].value == 0.25


async def test_a_penalty_that_cannot_be_judged_leaves_nothing_scored() -> None:
    assert (await score(says(1.0, "a"), Penalty(says(None, "rude")))).value is None
    assert (await score(says(1.0, "a"), Penalty(says(None, "rude"), optional=True))).value == 1.0


STEPS = tuple(TakenStep(n, "look", {"page": n}) for n in (1, 2, 3))


def page(attempt: Attempt) -> Verdict:
    assert attempt.answer == ""
    number = attempt.steps[-1].arguments["page"]
    return Verdict.unscored("down") if number == 3 else Verdict(float(number == len(attempt.steps) == 2))


async def test_each_step_is_judged_as_it_stood_then_and_has_its_component() -> None:
    rubric = Rubric([says(1.0, "a"), EachStep(check(page), name="way")])
    reward = await rubric.score(Attempt("x", steps=STEPS[:2]))
    assert reward.value == 0.75
    assert {name: (part.value, part.weight) for name, part in reward.components.items()} == {
        "a": (1.0, 0.5),
        "way/step-1": (0.0, 0.25),
        "way/step-2": (1.0, 0.25),
    }


async def test_a_step_that_cannot_be_judged_is_unscored_or_leaves_the_mean() -> None:
    strict = await Rubric(EachStep(check(page))).score(Attempt("x", steps=STEPS))
    assert (strict.value, strict.reason) == (None, "step-3: down")
    lenient = await Rubric(EachStep(check(page, optional=True))).score(Attempt("x", steps=STEPS))
    assert (lenient.value, lenient.missing) == (0.5, {"page/step-3": "down"})
    assert (await Rubric(EachStep(check(page), empty=1.0)).score(Attempt("x"))).value == 1.0


async def test_named_groups_name_what_they_hold_and_unnamed_ones_do_not() -> None:
    style = Weighted([says(1.0, "short"), Weighted([says(0.0, "plain")])], name="style")
    reward = await score(style, says(1.0, "right"))
    assert list(reward.components) == ["style/short", "style/plain", "right"]


@pytest.mark.parametrize("found", [None, "good", [], math.nan, math.inf])
async def test_a_check_that_returns_no_finite_number_is_unscored(found: Any) -> None:
    reward = await score(check(lambda attempt: found, name="odd"))
    assert reward.value is None


async def test_a_check_that_raises_is_unscored_and_its_text_stays_on_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(attempt: Attempt) -> float:
        raise ValueError("the secret is seventeen")

    reward = await score(check(broken))
    assert reward.value is None
    assert "the check raised ValueError (incident " in (reward.reason or "")
    assert "seventeen" not in reward.model_dump_json()
    assert "the secret is seventeen" in caplog.text


async def test_checks_that_wait_are_evaluated_at_the_same_time() -> None:
    met = asyncio.Barrier(8)

    async def meet(attempt: Attempt) -> bool:
        async with asyncio.timeout(60):
            await met.wait()
        return True

    reward = await score(*(check(meet, name=f"m{n}") for n in range(8)))
    assert reward.value == 1.0


async def test_a_cap_whose_condition_is_negative_does_not_cap() -> None:
    for found, expected in ((-0.5, 1.0), (0.0, 1.0), (0.1, 0.2)):
        assert (await score(Cap(says(1.0, "a"), at_most=0.2, when=says(found, "when")))).value == expected


async def test_a_sum_beyond_the_floats_is_unscored() -> None:
    for values in ((1e308, 1e308, 1e308), (1e308, -1e308, 1e308)):
        reward = await score(WeightedSum([says(value, f"c{n}", weight=10.0) for n, value in enumerate(values)]))
        assert (reward.value, reward.reason) == (None, "the sum of its checks is no finite number")
    assert (await score(WeightedSum([says(1e308, "a"), says(1e308, "b"), says(1e308, "c")]))).value is None


async def test_canceling_an_evaluation_cancels_its_checks() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(attempt: Attempt) -> bool:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return True

    task = asyncio.create_task(score(check(wait, name="a"), check(wait, name="b")))
    async with asyncio.timeout(60):
        await begun.wait()
        task.cancel()
        await ended.wait()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Rubric([says(1, "a"), says(1, "a")]), "two checks called 'a'"),
        (lambda: Weighted([]), "holds nothing"),
        (lambda: Weighted([says(1, "a", weight=0.0)]), "only metrics"),
        (lambda: Weighted([says(1, "a"), says(1, "b", weight=-1.0)]), "wrap what takes away in Penalty"),
        (lambda: says(1, "a", weight=math.nan), "must be a finite number"),
        (lambda: says(1, "a/b"), "holds a '/'"),
        (lambda: Penalty(says(1, "a"), amount=-1.0), "must be 0 or more"),
        (lambda: Gate(Penalty(says(1, "a")), says(1, "b")), "belongs in a Weighted or a WeightedSum"),
    ],
)
def test_a_tree_that_makes_no_sense_is_refused_when_it_is_built(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(AuthoringError, match=words):
        make()


VALUES = st.none() | st.floats(0, 1) | st.sampled_from([0.0, 1.0])
_counter = iter(range(10**9))


@st.composite
def leaves(draw: st.DrawFn) -> Node:
    make: Callable[..., Node] = draw(st.sampled_from([says, later]))
    weight = draw(st.sampled_from([0.5, 1.0, 3.0]))
    return make(draw(VALUES), f"c{next(_counter)}", weight=weight, optional=draw(st.booleans()))


def parents(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(children, min_size=1, max_size=4)
    penalties = st.lists(st.builds(Penalty, children, amount=st.floats(0, 1)), max_size=2)
    names = st.builds(lambda: f"g{next(_counter)}") | st.just("")
    return st.one_of(
        st.builds(lambda a, b, n: Weighted([*a, *b], name=n), several, penalties, names),
        st.builds(lambda a, n: WeightedSum(a, name=n), several, names),
        st.builds(lambda a, n: Sequential(a, name=n), several, names),
        st.builds(lambda a, b, n: Gate(a, b, at_least=0.5, name=n), children, children, names),
        st.builds(lambda a, b, n: Cap(a, 0.5, b, name=n), children, children | st.none(), names),
    )


@given(st.recursive(leaves(), parents, max_leaves=12))
def test_components_times_weights_add_up_to_the_value_of_any_tree(tree: Node) -> None:
    reward = asyncio.run(Rubric(tree).score(Attempt()))
    if reward.value is not None:
        added = math.fsum(part.value * part.weight for part in reward.components.values())
        assert reward.value == pytest.approx(added, abs=1e-9)
    else:
        assert reward.reason
        assert reward.missing
    assert Reward.model_validate_json(reward.model_dump_json()) == reward


@given(st.recursive(leaves(), parents, max_leaves=12))
def test_names_announced_beforehand_are_those_that_appear(tree: Node) -> None:
    reward = asyncio.run(Rubric(tree).score(Attempt()))
    made_up = {"cap", "floor"}
    seen = {n for n in {*reward.components, *reward.missing} if n.rpartition("/")[2].partition("-")[0] not in made_up}
    known = set(tree.names())
    prefixes = {name[: name.rindex("/")] for name in known if "/" in name}
    nested = {"/".join(prefix.split("/")[:n]) for prefix in prefixes for n in range(1, 9)}
    assert seen <= known | nested
