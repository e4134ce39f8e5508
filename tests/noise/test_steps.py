"""Steps with noise: the result that is reported, the reward that is earned, and what noise does not change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest
from desks import OPEN, PAGE, SECRET, Desk, Graded, Judged, Player

from ludus.protocol import EndReason, EpisodeLimits, NoiseKind, text_of
from ludus.protocol import episodes as e
from ludus.protocol.errors import AuthoringError
from ludus.protocol.identifiers import SUBMIT_TOOL
from ludus.protocol.methods import Scope
from ludus.server import EpisodeHost, Noise, with_noise
from ludus.server.auth.principal import Principal
from ludus.server.serving.metrics import Metrics

Sit = Callable[..., Awaitable[Any]]
ALL: tuple[NoiseKind, ...] = ("tool_error", "lost_answer", "delay", "truncation", "flaky_output")


def always(*kinds: NoiseKind, **more: Any) -> Noise:
    return Noise(rate=1.0, kinds=dict.fromkeys(kinds, 1.0), delay_seconds=0.01, **more)


@pytest.mark.requirement("NOISE-1", "NOISE-3", "CALL-4")
async def test_a_tool_error_comes_instead_of_the_call_and_uses_up_the_step(sit: Sit) -> None:
    player = await sit(always("tool_error"))
    result = await player.call("buy")
    assert (result.step, result.noise, result.reward, result.end_reason) == (1, "tool_error", None, None)
    assert result.error is not None
    assert (result.error.code, text_of(result.content)) == ("unavailable", result.error.message)
    assert Desk.calls["buy"] == 0
    assert (await player.call("buy")).step == 2


@pytest.mark.requirement("NOISE-1", "NOISE-3", "NOISE-4")
async def test_a_lost_answer_is_that_of_a_call_that_was_made_and_earned_its_reward(sit: Sit) -> None:
    player = await sit(always("lost_answer"))
    result = await player.call("page")
    assert Desk.calls["page"] == 1
    assert (result.noise, result.error.code) == ("lost_answer", "unavailable")
    assert "line 0" not in text_of(result.content)
    assert (result.reward.value, result.metadata) == (0.25, {"answer": SECRET})
    assert (await player.rewards()).total.value == 0.25


@pytest.mark.requirement("NOISE-1", "NOISE-3")
@pytest.mark.parametrize("kind", ["delay", "truncation", "flaky_output"])
async def test_other_noise_is_marked_and_is_no_error(sit: Sit, kind: NoiseKind) -> None:
    result = await (await sit(always(kind))).call("page")
    assert (result.noise, result.error, Desk.calls["page"]) == (kind, None, 1)
    assert (text_of(result.content) == PAGE) == (kind == "delay")


@pytest.mark.requirement("NOISE-1")
async def test_a_step_that_nothing_befell_has_no_mark(sit: Sit) -> None:
    player = await sit(Noise(rate=0.3, kinds={"flaky_output": 1.0, "truncation": 1.0}))
    results = [await player.call("page") for _ in range(60)]
    for result in results:
        assert (result.noise is None) == (text_of(result.content) == PAGE)
    assert 0 < sum(result.noise is not None for result in results) < 60
    assert (await (await sit(always("flaky_output"))).call("buy", amount=10)).noise is None, (
        "a refusal is told as it is"
    )
    assert (await (await sit()).call("page")).noise is None


@pytest.mark.requirement("CALL-1")
async def test_noise_does_not_hide_what_the_policy_did_wrong(sit: Sit) -> None:
    for kind in ALL:
        player = await sit(always(kind))
        unknown, wrong = await player.call("nosuch"), await player.call("buy", amount="many")
        assert [result.error.code for result in (unknown, wrong)] == ["unknown_tool", "invalid_arguments"]
        assert (unknown.noise, wrong.noise) == (None, "delay" if kind == "delay" else None)


# ── the same again ─────────────────────────────────────────────────────────────────────────────────────────────────


async def told(player: Player, steps: int = 30) -> list[tuple[str | None, str]]:
    results = [await player.call("page") for _ in range(steps)]
    return [(result.noise, text_of(result.content)) for result in results]


MIXED = Noise(rate=0.5, kinds=dict.fromkeys(ALL, 1.0), delay_seconds=0.001)


async def test_the_same_seed_meets_the_same_noise_and_another_seed_another(sit: Sit) -> None:
    first = await told(await sit(MIXED))
    assert await told(await sit(MIXED)) == first
    assert await told(await sit(MIXED, seed=8)) != first
    assert await told(await sit(MIXED.model_copy(update={"seed": 1}))) != first


async def test_episodes_of_a_group_meet_the_same_noise_unless_each_has_its_own(sit: Sit) -> None:
    same = [await told(player) for player in await sit(MIXED, count=3)]
    assert same[0] == same[1] == same[2]
    own = [await told(player) for player in await sit(MIXED.model_copy(update={"per_episode": True}), count=3)]
    assert len({tuple(one) for one in own}) == 3


class Unseedable(Desk):
    """A desk that takes no seed, and yet can be forked."""

    name = "unseedable"
    seedable = False


@pytest.mark.parametrize("per_episode", [False, True])
@pytest.mark.parametrize("cls", [Desk, Unseedable])
async def test_a_fork_has_the_noise_of_its_origin_before_and_after(sit: Sit, cls: Any, per_episode: bool) -> None:
    noise = MIXED.model_copy(update={"per_episode": per_episode})
    player = await sit(noise, cls=cls, **({} if cls.seedable else {"seed": None}))
    before = await told(player, 12)
    branch = await player.fork()
    assert {kind for kind, _ in before} > {None}
    assert await told(branch) == await told(player)
    assert await told(await branch.fork()) == await told(branch), "forks of forks, too"


async def test_a_repeated_key_gets_the_same_answer_and_calls_nothing(sit: Sit) -> None:
    for kind in ALL:
        Desk.calls.clear()
        player = await sit(always(kind))
        first = await player.call("buy")
        assert await player.again("buy") == first
        assert Desk.calls["buy"] == (kind != "tool_error")


# ── rewards ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("NOISE-4")
@pytest.mark.parametrize("cls", [Graded, Judged])
@pytest.mark.parametrize("kind", ["lost_answer", "delay", "truncation", "flaky_output"])
async def test_rewards_are_those_of_the_same_calls_without_noise(sit: Sit, kind: NoiseKind, cls: Any) -> None:
    totals = []
    for noise in (None, always(kind)):
        player = await sit(noise, cls=cls)
        for _ in range(3):
            await player.call("page")
        await player.call("buy", amount=99)
        await player.grade()
        totals.append((await player.rewards()).total)
    assert totals[0] == totals[1]
    assert totals[0].components["whole"].value == 1.0
    assert totals[0].components["clean"].value == 0.75


@pytest.mark.requirement("NOISE-4")
async def test_a_call_kept_from_its_tool_is_no_step_to_a_rubric(sit: Sit) -> None:
    """Two pages are read in both; with noise the policy asks until it has them."""
    totals = []
    for noise in (None, Noise(rate=0.6, kinds={"tool_error": 1.0}, seed=2)):
        player = await sit(noise, cls=Judged)
        for _ in range(2):
            while (await player.call("page")).error is not None:
                assert player.number < 50
        totals.append((await player.grade()).info.reward)
        steps = player.number
    assert steps > 6, "more than the rubric's worst"
    assert totals[0] == totals[1]
    assert totals[0].components["quick"].value == totals[0].components["clean"].value == 1.0


@pytest.mark.requirement("NOISE-4")
@pytest.mark.parametrize("kind", ALL)
async def test_what_ends_the_episode_is_left_alone(sit: Sit, kind: NoiseKind) -> None:
    graded = await (await sit(always(kind), cls=Judged)).grade()
    assert graded.reward.value == 1.0
    player = await sit(always(kind), cls=Judged)
    submitted = await player.host.play(player.id, SUBMIT_TOOL, {"answer": "x"})
    assert (submitted.noise, submitted.reward.value) == (None, 1.0)
    last = await (await sit(always(kind), limits=EpisodeLimits(max_steps=1))).call("page")
    assert (last.noise, text_of(last.content), last.end_reason) == (None, PAGE, EndReason.STEP_LIMIT)
    stopped = await (await sit(always(kind))).call("stop")
    if kind == "tool_error":
        assert (stopped.noise, stopped.end_reason) == ("tool_error", None), "it may be called again"
    else:
        assert (text_of(stopped.content), stopped.end_reason) == (PAGE, EndReason.COMPLETED)
        assert stopped.noise == ("delay" if kind == "delay" else None)


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("NOISE-5")
async def test_a_delay_does_not_count_against_the_limit_of_a_call(sit: Sit) -> None:
    noise = Noise(rate=1.0, kinds={"delay": 1.0}, delay_seconds=0.4)
    result = await (await sit(noise, limits=EpisodeLimits(tool_seconds=0.03))).call("page")
    assert (result.noise, text_of(result.content)) == ("delay", PAGE)


@pytest.mark.requirement("NOISE-5")
async def test_a_delay_ends_with_the_episodes_own_time(sit: Sit) -> None:
    noise = Noise(rate=1.0, kinds={"delay": 1.0}, delay_seconds=60)
    result = await (await sit(noise, limits=EpisodeLimits(seconds=0.05))).call("page")
    assert (result.noise, result.end_reason, Desk.calls["page"]) == ("delay", EndReason.TIME_LIMIT, 0)


async def test_an_episode_can_be_closed_while_a_call_is_delayed(sit: Sit) -> None:
    player = await sit(Noise(rate=1.0, kinds={"delay": 1.0}, delay_seconds=60))
    record = player.host.submit(e.StepParams(episode=player.id, step=1, tool="page", key="k"), OPEN)
    await player.host.close(e.CloseParams(episode=player.id), OPEN)
    assert record.outcome is not None
    assert Desk.calls["page"] == 0


# ── who sees it ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("NOISE-2")
async def test_without_the_scope_rewards_read_the_kind_is_not_shown(sit: Sit) -> None:
    blind = Principal(OPEN.name, frozenset({Scope.TASKS_READ, Scope.EPISODES_RUN}))
    for kind in ALL:
        player = await sit(always(kind))
        params = e.StepParams(episode=player.id, step=1, tool="page", key="k")
        assert (await player.host.step(params, OPEN)).noise == kind
        assert kind not in (await player.host.step(params, blind)).model_dump_json()


async def test_steps_with_noise_are_counted_by_kind(sit: Sit) -> None:
    player = await sit(Noise(rate=0.5, kinds={"tool_error": 1.0, "truncation": 1.0}))
    kinds = [kind for kind, _ in await told(player)]
    text = Metrics(player.host).render().decode()
    for kind in ("tool_error", "truncation"):
        assert f'ludus_noise_total{{kind="{kind}"}} {float(kinds.count(kind))}' in text
    assert "ludus_tool_errors_total 0.0" in text, "they are not the policy's mistakes"


# ── how it is attached ─────────────────────────────────────────────────────────────────────────────────────────────


class Several(Desk):
    """A desk with variants."""

    name = "several"
    variants: ClassVar[Any] = {"hard": {"version": "2"}, "noisy": {"noise": Noise(rate=0.1)}}


async def test_noise_is_attached_by_attribute_variant_or_wrapper_and_the_class_stays_as_it_was() -> None:
    noise = Noise(rate=0.2)
    wrapped = with_noise(Several, noise)
    async with EpisodeHost([wrapped]) as host:
        found = {name: one.cls.noise for name, one in host.catalog.items()}
    assert found == {"several": noise, "several-hard": noise, "several-noisy": Noise(rate=0.1)}
    async with EpisodeHost([Several, with_noise(Several, noise, "loud")]) as host:
        assert [name for name, one in host.catalog.items() if one.cls.noise == noise] == ["loud", "loud-hard"]
    assert Several.noise is None
    assert with_noise(wrapped, None).noise is None
    assert (wrapped.__doc__, wrapped.__name__, wrapped.__module__) == (
        Several.__doc__, Several.__name__, Several.__module__,
    )  # fmt: skip


def test_noise_that_is_none_is_refused_at_startup() -> None:
    class Wrong(Desk):
        noise = 0.1  # type: ignore[assignment]

    with pytest.raises(AuthoringError, match=r"Wrong\.noise is float; give a ludus\.server\.Noise"):
        EpisodeHost([Wrong])
