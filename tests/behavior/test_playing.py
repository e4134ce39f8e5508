"""What an agent sees of an episode is the same on each transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from worlds import FAULTS, PIXEL, SECRET_ANSWER, SECRET_REMARK, Noisy, Playground, Troublesome

from ludus.protocol import ImageBlock, TextBlock

Sit = Callable[..., Awaitable[Any]]


@pytest.mark.suite("breadth", first=1)
async def test_prompt_and_tools_are_the_episodes_own(sit: Sit) -> None:
    seat = await sit(Playground, index=3)
    assert seat.prompt == "Say word 3."
    assert set(seat.tools) == {"add", "roll", "say", "look", "refuse", "where", "finish"}


@pytest.mark.suite("breadth", first=2)
async def test_calls_change_the_state_of_this_episode_and_no_other(sit: Sit) -> None:
    one, two = await sit(Playground), await sit(Playground)
    assert (await one.call("add", amount=5)).text == "count 5"
    assert (await two.call("add")).text == "count 1"
    assert (await one.call("add")).text == "count 6"


@pytest.mark.suite("breadth", first=1)
async def test_the_seed_reaches_the_environment(sit: Sit) -> None:
    same = [await (await sit(Playground, seed=11)).call("roll") for _ in range(2)]
    other = await (await sit(Playground, seed=12)).call("roll")
    assert same[0].text == same[1].text
    assert same[0].text != other.text


@pytest.mark.suite("breadth", first=1)
async def test_text_arrives_as_it_was_said(sit: Sit) -> None:
    seat = await sit(Playground)
    for text in (
        "",
        " leading",
        "tab\tnew\nline\r\n",
        "ünï-\u2028-\u00a0-\U0001f600",
        " " * 9000 + "end",
        "x" * 100_000,
    ):
        assert (await seat.call("say", text=text)).content == (TextBlock(text=text),)


async def test_an_optional_parameter_called_title_survives(sit: Sit) -> None:
    seat = await sit(Playground)
    assert (await seat.call("say", text="x", title="t")).text == "t: x"


async def test_images_arrive_whole(sit: Sit) -> None:
    seat = await sit(Playground)
    assert (await seat.call("look")).content == (TextBlock(text="a picture"), ImageBlock.of(PIXEL))


async def test_mistakes_are_reported_and_the_episode_continues(sit: Sit) -> None:
    seat = await sit(Playground)
    for tool, arguments in {"nosuch": {}, "add": {"amount": "many"}, "say": {}, "refuse": {}}.items():
        seen = await seat.call(tool, **arguments)
        assert seen.mistake, tool
        assert seen.text
    extra = await seat.call("roll", color="red")
    assert extra.mistake
    assert "color" in extra.text
    assert (await seat.call("add")).text == "count 1"


async def test_a_tool_ends_the_episode_and_later_calls_report_it(sit: Sit) -> None:
    seat = await sit(Playground, index=2)
    won = await seat.call("finish", word=f"{SECRET_ANSWER}-2")
    assert won.text.startswith("done")
    for _ in range(2):
        assert (await seat.call("add")).over
    assert (await seat.submit("late")).over


async def test_a_final_answer_ends_the_episode(sit: Sit) -> None:
    seat = await sit(Playground)
    seen = await seat.submit("something")
    assert not seen.over
    assert (await seat.call("add")).over


@pytest.mark.suite("breadth", first=1)
async def test_rewards_reach_trainers_and_never_players(sit: Sit) -> None:
    seat = await sit(Playground, index=1)
    added = await seat.call("add")
    done = await seat.call("finish", word=f"{SECRET_ANSWER}-1")
    if seat.sees_rewards:
        assert (added.reward, done.reward) == (0.25, 1.0)
    else:
        assert (added.reward, done.reward) == (None, None)
        shown = repr(added) + repr(done)
        assert "0.25" not in shown
        assert SECRET_REMARK not in shown


@pytest.mark.suite("breadth", first=7)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_broken_environment_fails_its_episode_with_an_incident(sit: Sit, fault: str) -> None:
    seat, other = await sit(Troublesome), await sit(Playground)
    seen = await seat.call(fault)
    assert seen.failed
    assert SECRET_ANSWER not in seen.text
    again = await seat.call("crash")
    assert again.over or again.failed
    assert (await other.call("add")).text == "count 1"


@pytest.mark.suite("breadth", first=1)
@pytest.mark.requirement("NOISE-2", "PLAY-4", "PLAY-6")
async def test_noise_looks_like_tools_that_fail_and_an_agent_cannot_see_the_difference(sit: Sit) -> None:
    seat = await sit(Noisy)
    seen = [await seat.call("say", text="x" * 1000) for _ in range(12)]
    assert Noisy.noise is not None
    kinds = []
    for one in seen:
        if not one.mistake:
            assert "[observation cut:" in one.text
        kinds.append("truncation" if not one.mistake else "lost_answer" if "lost" in one.text else "tool_error")
    hits = [hit.kind for step in range(1, 13) if (hit := Noisy.noise.draw("7", step)) is not None]
    assert kinds == hits
    assert set(kinds) == {"truncation", "lost_answer", "tool_error"}
    if not seat.sees_rewards:
        assert not any(kind in repr(seen) for kind in (*kinds, "noise"))


@pytest.mark.suite("breadth", first=2)
async def test_many_calls_at_once_each_run_once(sit: Sit) -> None:
    seat = await sit(Playground)
    seen = await asyncio.gather(*(seat.call("add") for _ in range(25)))
    assert sorted(int(one.text.split()[1]) for one in seen) == list(range(1, 26))
