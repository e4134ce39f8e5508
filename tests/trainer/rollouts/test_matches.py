"""Matches that the trainer plays: all seats from one call, in turn over the wire, and compared seat by seat."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from scripted import ScriptedEngine, call, make_config
from seated_world import Nim, Piles

from ludus.client import Episode
from ludus.protocol.episodes import EpisodeInfo, StepResult
from ludus.rendering import Renderer
from ludus.server import Environment, Reward, Split, Task
from ludus.trainer.collecting.collector import Collector
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import ConfigError, EngineError, RolloutError
from ludus.trainer.core.frozen import FrozenPolicies
from ludus.trainer.core.samples import RolloutGroup, RolloutStatus
from ludus.trainer.evaluation import evaluate
from ludus.trainer.learning.batch import make_batch
from ludus.trainer.rollouts.sampler import TaskSampler, open_source

FIRST = "step-00000000"


def take(prompt: str, rng: random.Random) -> str:
    """Take some of what is left; sometimes more than there is, which is refused."""
    left = int(re.findall(r"(\d+) left", prompt)[-1])
    return call("take", count=rng.randint(1, min(3, left + 1)))


class Counting(Piles):
    """Counts how its matches are opened."""

    name = "piles"
    opened: Counter[str] = Counter()

    def setup(self) -> None:
        """Count the seats of each match."""
        Counting.opened[self.match.id] += 1


def configured(url: str, rules: dict[str, Any], **options: Any) -> TrainConfig:
    """A short run of self-play."""
    given: dict[str, Any] = {"drop_zero_variance": False, "max_turns": 30, **options}
    return make_config(url, self_play=rules, evaluation={"split": "train", "tasks": 3}, **given)


class Run:
    """A collector with the engines of its policy and of its frozen opponents."""

    def __init__(self, config: TrainConfig, engine: ScriptedEngine, renderer: Renderer, source: TaskSampler) -> None:
        self.config, self.engine, self.renderer, self.source = config, engine, renderer, source
        self.frozen: dict[str, ScriptedEngine] = {}
        self.pool = FrozenPolicies(Path("/nowhere"), self._open)
        self.collector = Collector(config, engine, renderer, source, None, self.pool)
        self.opening: type[Exception] | None = None

    async def _open(self, folder: Path) -> ScriptedEngine:
        if self.opening is not None:
            raise self.opening("no such snapshot")
        return self.frozen.setdefault(folder.name, ScriptedEngine(self.renderer.tokenizer, take))

    def sync(self, version: int) -> None:
        """What the main loop does after an update."""
        assert self.source.opponents is not None
        if (name := self.source.opponents.due(version)) is not None:
            self.source.opponents.add(name)
        self.engine.version = version
        self.collector.on_weights_updated(version)

    async def batches(self, count: int, first: int = 0) -> list[list[RolloutGroup]]:
        """Collect some batches."""
        found = []
        for version in range(first, first + count):
            self.sync(version)
            found.append((await self.collector.batch())[0])
        return found


@asynccontextmanager
async def running(
    config: TrainConfig, engine: ScriptedEngine, renderer: Renderer, state: dict[str, Any] | None = None
) -> AsyncIterator[Run]:
    async with open_source(config) as source:
        run = Run(config, engine, renderer, source)
        if state is not None:
            run.collector.load_state(state)
        async with run.collector:
            yield run
        await run.pool.aclose()


@pytest.fixture
def policy(renderer: Renderer) -> ScriptedEngine:
    Counting.opened.clear()
    return ScriptedEngine(renderer.tokenizer, take)


async def test_all_seats_of_a_match_come_from_one_call_and_every_turn_of_the_policy_is_a_move(
    serve: Any, policy: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Counting)
    async with running(configured(server.url, {"mode": "self"}), policy, renderer) as run:
        asked = run.source.environments[0].remote
        starts: list[dict[str, Any]] = []
        original = asked.start_match

        async def counted(**options: Any) -> Any:
            starts.append(options)
            return await original(**options)

        asked.start_match = counted  # type: ignore[method-assign]
        Counting.opened.clear()
        (groups,) = await run.batches(1)
    assert len(groups) == 2
    assert [start["seats"] for start in starts] == ["all"] * 8
    assert len(Counting.opened) == 8
    assert set(Counting.opened.values()) == {2}
    for group in groups:
        first, second = group.comparable
        assert [len(first), len(second)] == [4, 4]
        assert ({one.seat for one in first}, {one.seat for one in second}) == ({"first"}, {"second"})
        for one, other in zip(first, second, strict=True):
            assert one.reward is not None
            assert one.reward + (other.reward or 0.0) == 1.0
            assert one.trajectory.group == other.trajectory.group
        for rollout in group.rollouts:
            assert not [step for step in rollout.trajectory.steps if "not your move" in str(step.error)]
            (sample,) = rollout.samples
            own = [token for token, mine in zip(sample.ids, sample.mask, strict=True) if mine]
            calls = [item for item in rollout.trajectory.items if item["type"] == "function_call"]
            moves = [item for item in calls if item["name"] == "take"]
            assert renderer.tokenizer.decode(own).count('"take"') == len(moves) > 0
            assert '"wait"' not in renderer.tokenizer.decode(own)
        waits = [i for r in second for i in r.trajectory.items if i.get("name") == "wait"]
        assert len(waits) >= 4


async def test_a_seat_that_has_seen_the_others_moves_acts_without_asking_again_whether_it_may(
    serve: Any, policy: ScriptedEngine, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(Counting)
    requests: dict[str, list[str]] = defaultdict(list)
    ask, step = Episode.info, Episode.call

    async def info(episode: Episode) -> EpisodeInfo:
        requests[episode.id].append("info")
        return await ask(episode)

    async def call(episode: Episode, tool: Any) -> StepResult:
        requests[episode.id].append(tool.tool)
        return await step(episode, tool)

    monkeypatch.setattr(Episode, "info", info)
    monkeypatch.setattr(Episode, "call", call)
    async with running(configured(server.url, {"mode": "self"}), policy, renderer) as run:
        await run.batches(1)
    # Without the last request, which may ask how an episode ended.
    followed = [after for made in requests.values() for one, after in pairwise(made[:-1]) if one == "wait"]
    assert set(followed) == {"take"}
    assert all(made[0] == "info" for made in requests.values())


async def test_only_the_policys_own_seat_is_learned_from_against_a_frozen_snapshot(
    serve: Any, policy: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Counting)
    async with running(configured(server.url, {"mode": "pool"}, groups=4), policy, renderer) as run:
        (groups,) = await run.batches(1)
        opened = run.pool.opened
        frozen = run.frozen[FIRST]
    assert opened == 1
    assert {group.plan.opponent for group in groups if group.plan} == {FIRST}
    assert {len(group.rollouts) for group in groups} == {4}
    assert len({group.rollouts[0].seat for group in groups}) == 2, "the seat is drawn for each group"
    assert set(policy.sessions) & set(frozen.sessions) == set()
    assert sum(policy.sessions.values()) == sum(
        len(r.samples[0].turns) > 0 and _turns(r) for g in groups for r in g.rollouts
    )
    assert sum(frozen.sessions.values()) > 0
    assert frozen.sessions == frozen.forgotten | frozen.sessions
    seats = {name.rsplit(".", 1)[1] for name in policy.sessions}
    assert seats == {group.rollouts[0].seat for group in groups}


def _turns(rollout: Any) -> int:
    return len(set(rollout.samples[0].turns) - {-1})


async def test_scripted_opponents_of_the_configured_strength_play_their_share(
    serve: Any, policy: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Counting)
    rules = {"mode": "self", "scripted": {"perfect": 0.5}, "seats": ["second"]}
    async with running(configured(server.url, rules, groups=12, group_size=2), policy, renderer) as run:
        (groups,) = await run.batches(1)
    kinds = Counter(group.plan.kind for group in groups if group.plan)
    assert kinds["scripted"] + kinds["current"] == 12
    assert 2 <= kinds["scripted"] <= 10
    for group in groups:
        assert group.plan is not None
        if group.plan.kind == "scripted":
            assert {rollout.seat for rollout in group.rollouts} == {"second"}
            assert not [i for r in group.rollouts for i in r.trajectory.items if i.get("name") == "wait"]


@pytest.mark.parametrize("which", ["frozen", "own"])
async def test_a_match_that_breaks_at_one_seat_is_unscored_for_all_and_played_again(
    serve: Any, policy: ScriptedEngine, renderer: Renderer, which: str
) -> None:
    server = await serve(Counting)
    broken = Counter[str]()

    def fails_first(prompt: str, rng: random.Random) -> str:
        broken["asked"] += 1
        if broken["asked"] <= 3:
            raise EngineError("the engine hiccuped")
        return take(prompt, rng)

    config = configured(server.url, {"mode": "pool", "seats": ["second"]}, groups=1, group_size=2, retries=4)
    async with running(config, policy, renderer) as run:
        if which == "own":
            policy.script = fails_first
        else:
            run.frozen[FIRST] = ScriptedEngine(renderer.tokenizer, fails_first)
        (groups,) = await run.batches(1)
    (group,) = groups
    failed = [rollout for rollout in group.rollouts if rollout.status is RolloutStatus.FAILED]
    assert len(group.scored) == 2
    assert len(failed) == 3
    for rollout in failed:
        assert rollout.reward is None
        assert rollout.turn_rewards == ()
        assert rollout.trajectory.value is None
        assert rollout.trajectory.failure is not None
        assert "hiccuped" in rollout.trajectory.failure.message
    assert len(make_batch(groups, config).samples) <= 2


async def test_a_time_limit_of_the_trainer_makes_no_winner(
    serve: Any, policy: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Counting)

    async def never(prompt: str) -> str:
        await asyncio.Event().wait()
        return prompt

    policy.script = lambda prompt, rng: never(prompt) if "You are second" in prompt else take(prompt, rng)
    config = configured(server.url, {"mode": "self"}, groups=1, max_dropped_groups=1, turn_seconds=0.05)
    async with running(config, policy, renderer) as run:
        run.sync(0)
        with pytest.raises(RolloutError, match="a time limit of `rollouts` stopped the seat second"):
            await run.collector.batch()


async def test_matches_never_open_more_episodes_than_allowed_and_never_wait_for_each_other(
    serve: Any, policy: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Counting)
    config = configured(server.url, {"mode": "self"}, groups=3, concurrency=5)
    async with running(config, policy, renderer) as run:
        playing, most = set[str](), 0
        remote = run.source.environments[0].remote
        original = remote.start_match

        async def counted(**options: Any) -> Any:
            nonlocal most
            match = await original(**options)
            playing.add(match.id)
            most = max(most, len(playing))
            close = match.close

            async def closed() -> None:
                playing.discard(match.id)
                await close()

            match.close = closed  # type: ignore[method-assign]
            return match

        remote.start_match = counted  # type: ignore[method-assign]
        async with asyncio.timeout(30):
            (groups,) = await run.batches(1)
    assert [len(group.rollouts) for group in groups] == [8, 8, 8]
    assert most == 2, "five slots are enough for two matches of two seats"


async def test_advantages_compare_a_seat_with_the_same_seat_of_other_matches(
    serve: Any, policy: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Counting)
    config = configured(server.url, {"mode": "self"}, groups=4)
    async with running(config, policy, renderer) as run:
        (groups,) = await run.batches(1)
    uneven = [
        g
        for g in groups
        if 0 < sum(r.reward or 0 for r in g.comparable[0]) < 4 and sum(r.reward or 0 for r in g.comparable[0]) != 2
    ]
    assert uneven, "no group tells seats apart"
    batch = make_batch(groups, config)
    credit: dict[str, set[float]] = {}
    for item in batch.samples:
        credit.setdefault("".join(map(str, item.sample.ids)), set()).update(
            a for a, own in zip(item.advantages, item.sample.mask, strict=True) if own
        )
    for group in groups:
        for own in group.comparable:
            mean = sum(r.reward or 0.0 for r in own) / len(own)
            for rollout in own:
                (found,) = credit["".join(map(str, rollout.samples[0].ids))]
                assert found == pytest.approx((rollout.reward or 0.0) - mean)


@pytest.mark.suite("training")
async def test_a_resumed_collector_plays_the_same_seats_against_the_same_opponents(
    serve: Any, renderer: Renderer
) -> None:
    server = await serve(Counting)
    rules = {"mode": "pool", "every": 1, "size": 3, "scripted": {"random": 0.2}, "current": 0.2, "draw": "pfsp"}
    config = configured(server.url, rules, groups=4)

    def told(batches: list[list[RolloutGroup]]) -> list[Any]:
        return [
            (g.number, g.task, g.plan, [(r.seat, r.reward, r.samples) for r in g.rollouts]) for b in batches for g in b
        ]

    async with running(config, ScriptedEngine(renderer.tokenizer, take), renderer) as run:
        whole = told(await run.batches(6))
    async with running(config, ScriptedEngine(renderer.tokenizer, take), renderer) as run:
        halves = told(await run.batches(3))
        run.sync(3)
        state = run.collector.state(3)
    async with running(config, ScriptedEngine(renderer.tokenizer, take), renderer, state) as run:
        assert run.source.opponents is not None
        assert run.source.opponents.members == tuple(f"step-0000000{n}" for n in (1, 2, 3))
        halves += told(await run.batches(3, first=3))
    assert halves == whole
    assert len({plan.opponent for _, _, plan, _ in whole}) >= 4


async def test_a_batch_that_was_not_learned_from_counts_once_after_the_resume(serve: Any, renderer: Renderer) -> None:
    server = await serve(Counting)
    config = configured(server.url, {"mode": "pool"}, groups=4)

    def matches(run: Run) -> int:
        assert run.source.opponents is not None
        return sum(len(recent) for recent in run.source.opponents.state()["results"].values())

    async with running(config, ScriptedEngine(renderer.tokenizer, take), renderer) as run:
        await run.batches(2)
        state = run.collector.state(1)  # the second batch was handed out, and the run ended before it was learned from
        assert matches(run) == 16
    async with running(config, ScriptedEngine(renderer.tokenizer, take), renderer, state) as run:
        await run.batches(1, first=1)
        run.sync(2)
        assert matches(run) == 32


async def test_an_evaluation_plays_each_seat_against_each_scripted_opponent_and_the_pool(
    serve: Any, policy: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Counting)

    def perfect(prompt: str, rng: random.Random) -> str:
        left = re.findall(r"(\d+) left", prompt)
        return call("take", count=int(left[-1]) % 4 or 1) if left else call("recall")

    policy.script = perfect
    config = configured(server.url, {"mode": "pool"})
    async with running(config, policy, renderer) as run:
        run.sync(0)
        metrics, groups = await evaluate(policy, renderer, run.source, config, frozen=run.pool)
    assert len(groups) == 3 * 2 * 3
    assert [r.trajectory.failure for g in groups for r in g.rollouts] == [None] * 18
    assert {(g.plan.opponent, g.plan.seats[0]) for g in groups if g.plan} == {
        (name, seat) for name in ("random", "perfect", FIRST) for seat in ("first", "second")
    }
    for name in ("random", "perfect", FIRST):
        shares = [metrics[f"evaluation/piles/{name}/{key}"] for key in ("won", "drawn", "lost")]
        assert sum(shares) == pytest.approx(1.0)
        assert metrics[f"evaluation/piles/{name}/matches"] == 6
        assert metrics[f"evaluation/piles/{name}/won_low"] <= shares[0] <= metrics[f"evaluation/piles/{name}/won_high"]
    assert metrics["evaluation/piles/random/won"] > metrics["evaluation/piles/perfect/won"]
    scripted = [r.reward or 0.0 for g in groups if g.plan and g.plan.kind == "scripted" for r in g.scored]
    assert metrics["evaluation/piles/mean"] == pytest.approx(sum(scripted) / len(scripted))


class Lonely(Environment[Task]):
    """An environment without seats."""

    splits = {"train": Split([Task(id="only")]), "test": Split([Task(id="other")])}

    def prompt(self) -> str:
        """Nothing."""
        return "Say something."

    def grade(self, answer: str) -> Reward:
        """The same for all."""
        return Reward.of(float(bool(answer)))


class Silent(Nim):
    """All seats must be taken."""

    opponents = ()


class Unscripted(Piles):
    """Every seat needs an agent."""

    match_class = Silent


@pytest.mark.parametrize(
    ("environment", "rules", "message"),
    [
        (Piles, {"seats": ["third"]}, r"has no seat 'third' \(`self_play.seats`\); it has 'first', 'second'"),
        (Piles, {"scripted": {"godlike": 0.5}}, r"no scripted opponent 'godlike' .*it has 'random', 'perfect'"),
        (Piles, {"evaluate_scripted": ["godlike"]}, r"`self_play.evaluate_scripted`"),
        (Unscripted, {"scripted": {"random": 0.5}}, r"it has none"),
        (Lonely, {}, r"self_play needs an environment with seats, and 'lonely' has none"),
    ],
)  # fmt: skip
async def test_a_configuration_that_the_environment_cannot_follow_is_refused(
    serve: Any, environment: Any, rules: dict[str, Any], message: str
) -> None:
    server = await serve(environment)
    with pytest.raises(ConfigError, match=message):
        async with open_source(configured(server.url, rules)):
            pass


async def test_a_wire_without_matches_is_refused(serve: Any) -> None:
    server = await serve(Piles)
    config = make_config(environments=[{"url": server.url, "wire": "ors"}], self_play={}, evaluation={"split": "train"})
    with pytest.raises(ConfigError, match="cannot be used for self_play: the wire .ors. has no matches"):
        async with open_source(config):
            pass


async def test_a_match_that_needs_more_episodes_than_the_limit_is_refused(serve: Any) -> None:
    server = await serve(Piles)
    with pytest.raises(ConfigError, match="a match opens 2 episodes"):
        async with open_source(configured(server.url, {}, concurrency=1)):
            pass


async def test_a_snapshot_that_cannot_be_loaded_ends_the_run_with_its_name(
    serve: Any, policy: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Piles)
    async with running(configured(server.url, {"mode": "pool"}), policy, renderer) as run:
        run.opening = OSError
        run.sync(0)
        with pytest.raises(Exception, match="the frozen opponent step-00000000 cannot be loaded: no such snapshot"):
            await run.collector.batch()
