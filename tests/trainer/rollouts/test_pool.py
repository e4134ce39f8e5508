"""The choice of opponents, and the snapshots that are held in memory."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ludus.trainer.core.config import SelfPlayConfig, TrainConfig
from ludus.trainer.core.errors import RolloutError, TrainerError
from ludus.trainer.core.frozen import FrozenPolicies
from ludus.trainer.core.opponents import WINDOW, MatchPlan, Opponents, outcome_of

INFO: Any = SimpleNamespace(
    seats=(SimpleNamespace(name="first"), SimpleNamespace(name="second")), opponents=("weak", "strong")
)
GROUPS = 2000


def opponents(members: int = 0, /, **settings: Any) -> Opponents:
    found = Opponents(SelfPlayConfig.model_validate({"mode": "pool", **settings}), seed=1)
    for number in range(members):
        found.add(f"s{number}")
    return found


def against(pool: Opponents, name: str, *outcomes: Any) -> None:
    pool.record(MatchPlan(("first",), "snapshot", name), outcomes)


def drawn(pool: Opponents) -> Counter[str]:
    return Counter(pool.plan(number, INFO).opponent for number in range(GROUPS))


def test_groups_are_shared_as_configured_and_seats_take_turns_at_random() -> None:
    pool = opponents(1, scripted={"weak": 0.1, "strong": 0.2}, current=0.3)
    plans = [pool.plan(number, INFO) for number in range(GROUPS)]
    shares = Counter(plan.opponent for plan in plans)
    for name, share in (("weak", 0.1), ("strong", 0.2), ("current", 0.3), ("s0", 0.4)):
        assert shares[name] / GROUPS == pytest.approx(share, abs=0.04)
    assert {plan.seats for plan in plans if plan.kind == "current"} == {("first", "second")}
    seats = Counter(plan.seats for plan in plans if plan.kind != "current")
    assert set(seats) == {("first",), ("second",)}
    assert min(seats.values()) > 0.4 * seats.total()


def test_groups_of_the_warm_up_are_the_policys_own_matches() -> None:
    assert {opponents(2).plan(-number, INFO).kind for number in range(1, 50)} == {"current"}


def test_uniform_draws_all_and_recent_the_newest() -> None:
    uniform = drawn(opponents(4, draw="uniform"))
    assert set(uniform) == {"s0", "s1", "s2", "s3"}
    assert max(uniform.values()) < 1.3 * min(uniform.values())
    assert set(drawn(opponents(5, draw="recent"))) == {"s2", "s3", "s4"}


def test_prioritized_draws_follow_the_win_rates() -> None:
    expected = {"s0": 1.0, "s1": 0.25, "s2": 0.0}
    pool = opponents(3)
    against(pool, "s0", "loss", "loss")
    against(pool, "s1", "draw", "win", "loss", "draw")
    against(pool, "s2", "win", "win")
    pool.publish(1)
    assert {name: pool.priority(name) for name in expected} == expected
    shares = drawn(pool)
    for name, weight in expected.items():
        assert shares[name] / GROUPS == pytest.approx(weight / sum(expected.values()), abs=0.04)


def test_a_pool_that_is_always_beaten_is_drawn_from_all_the_same() -> None:
    pool = opponents(3)
    for name in pool.members:
        against(pool, name, "win")
    pool.publish(1)
    assert set(drawn(pool)) == {"s0", "s1", "s2"}


def test_results_count_from_the_next_version_on_and_only_the_newest_of_them() -> None:
    pool = opponents(2)
    against(pool, "s0", "win", *["loss"] * WINDOW)
    assert pool.priority("s0") == 0.25, "a snapshot without matches is an equal"
    pool.publish(1)
    assert pool.priority("s0") == 1.0
    against(pool, "s0", *["win"] * WINDOW)
    pool.publish(1)
    assert pool.priority("s0") == 1.0
    pool.publish(2)
    assert pool.priority("s0") == 0.0


def test_the_oldest_snapshot_leaves_a_full_pool_with_its_results() -> None:
    pool = opponents(3, size=2)
    assert pool.members == ("s1", "s2")
    against(pool, "s0", "win")
    against(pool, "s1", "win")
    pool.add("s3")
    assert pool.members == ("s2", "s3")
    assert pool.state()["results"] == {}


def test_a_snapshot_is_due_once_for_each_interval() -> None:
    pool = opponents(every=3)
    assert [step for step in range(8) if pool.due(step)] == [0, 3, 6]
    pool.add("step-00000003")
    assert pool.due(3) is None
    assert Opponents(SelfPlayConfig(), 1).due(0) is None


def test_a_restored_pool_makes_the_same_choices() -> None:
    pool = opponents(3, scripted={"weak": 0.2})
    against(pool, "s1", "loss", "win")
    pool.publish(1)
    against(pool, "s2", "win", "win")
    again = opponents(scripted={"weak": 0.2})
    again.load_state(json.loads(json.dumps(pool.state())))
    assert [again.plan(n, INFO) for n in range(200)] == [pool.plan(n, INFO) for n in range(200)]
    for one in (pool, again):
        one.publish(1)
    assert [again.plan(n, INFO) for n in range(200)] == [pool.plan(n, INFO) for n in range(200)]
    for one in (pool, again):
        one.publish(2)
    assert drawn(again) == drawn(pool)
    assert MatchPlan.load(json.loads(json.dumps(pool.plan(7, INFO).state()))) == pool.plan(7, INFO)


def test_an_empty_pool_is_an_error_and_not_a_match() -> None:
    with pytest.raises(RolloutError, match="the pool of opponents is empty"):
        drawn(opponents())


@pytest.mark.parametrize(
    ("reward", "bounds", "expected"),
    [
        (1.0, (0.0, 1.0), "win"), (0.5, (0.0, 1.0), "draw"), (0.0, (0.0, 1.0), "loss"), (0.0, (-1.0, 1.0), "draw"),
        (0.51, (0.0, 1.0), "win"), (-0.2, (-1.0, 1.0), "loss"), (0.1 + 0.2 + 0.2, (0.0, 1.0), "draw"),
    ],
)  # fmt: skip
def test_a_reward_above_the_middle_is_a_win(reward: float, bounds: tuple[float, float], expected: str) -> None:
    assert outcome_of(reward, bounds) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"self_play": {"mode": "self", "current": 0.5}}, 'current is for mode = "pool"'),
        ({"self_play": {"mode": "pool", "scripted": {"weak": 0.7}, "current": 0.7}}, "add up to 1.4"),
        ({"self_play": {}, "rollouts": {"harness": "command x"}}, "not for a harness"),
        ({"self_play": {}, "advantages": {"credit": "monte_carlo"}}, "a match cannot be forked"),
        ({"self_play": {}, "mix": {"kind": "progress"}}, "excludes curriculum, stages and mixes"),
        ({"self_play": {"mode": "pool"}, "engine": {"kind": "vllm"}}, 'needs engine.vllm.sync = "lora"'),
    ],
)
def test_settings_that_exclude_self_play_are_refused(settings: dict[str, Any], message: str) -> None:
    run = {"output": "x", "model": {"path": "x"}, "environments": [{"url": "http://127.0.0.1:1"}]}
    with pytest.raises(ValueError, match=message):
        TrainConfig.model_validate(run | settings)


class Held:
    """An engine that counts how many of its kind are open."""

    context = 10
    open: set[str] = set()
    most = 0

    def __init__(self, name: str) -> None:
        self.name = name
        Held.open.add(name)
        Held.most = max(Held.most, len(Held.open))

    async def aclose(self) -> None:
        """Not open any more."""
        Held.open.remove(self.name)


def frozen(folder: Path, loaded: int) -> FrozenPolicies:
    Held.open, Held.most = set(), 0

    async def load(path: Path) -> Any:
        await asyncio.sleep(0)
        if path.name == "gone":
            raise OSError("no such file")
        return Held(path.name)

    return FrozenPolicies(folder, load, loaded)


async def test_no_more_snapshots_are_open_than_allowed_and_none_closes_while_it_plays(tmp_path: Path) -> None:
    policies = frozen(tmp_path, 2)

    async def play(number: int) -> None:
        name = f"s{number % 5}"
        async with policies.lease(name) as engine:
            for _ in range(3):
                await asyncio.sleep(0)
                assert name in Held.open
            assert isinstance(engine, Held)
            assert engine.name == name

    async with asyncio.timeout(20):
        await asyncio.gather(*map(play, range(40)))
    assert Held.most == 2
    assert policies.opened >= 5
    await policies.aclose()
    assert Held.open == set()


async def test_groups_of_one_snapshot_share_its_engine(tmp_path: Path) -> None:
    policies = frozen(tmp_path, 2)
    async with policies.lease("a") as one, policies.lease("a") as other:
        assert one is other
    async with policies.lease("a") as again:
        assert again is one
    assert policies.opened == 1


async def test_a_snapshot_that_cannot_be_loaded_blocks_no_other(tmp_path: Path) -> None:
    policies = frozen(tmp_path, 1)
    for _ in range(2):
        with pytest.raises(TrainerError, match=r"frozen opponent gone cannot be loaded: no such file\. Restore"):
            async with policies.lease("gone"):
                pass
    async with asyncio.timeout(5), policies.lease("a"):
        assert Held.open == {"a"}


async def test_a_waiter_that_is_canceled_leaves_its_place_to_others(tmp_path: Path) -> None:
    policies = frozen(tmp_path, 1)

    async def hold(name: str) -> None:
        async with policies.lease(name):
            await asyncio.sleep(0)

    async with policies.lease("a"):
        waiting = [asyncio.create_task(hold("b")), asyncio.create_task(hold("c"))]
        await asyncio.sleep(0)
        waiting[0].cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting, return_exceptions=True)
    assert waiting[0].cancelled()
    assert waiting[1].exception() is None


async def test_folders_stay_as_long_as_the_pool_a_match_or_a_checkpoint_needs_them(tmp_path: Path) -> None:
    policies = frozen(tmp_path / "opponents", 2)
    for name in ("member", "plays", "saved", "old"):
        (tmp_path / "opponents" / name).mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-1").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-1" / "checkpoint.json").write_text('{"members": ["saved"]}')
    async with policies.lease("old"):
        pass
    async with policies.lease("plays"):
        await policies.prune(("member",), tmp_path / "checkpoints")
    assert {path.name for path in (tmp_path / "opponents").iterdir()} == {"member", "plays", "saved"}
    assert Held.open == {"plays"}, "an engine that is not needed any more is closed"
