"""Other right ways that built-in environments list earn what the oracle earns."""

from __future__ import annotations

from typing import Any

import pytest

from ludus.environments.browser.driver.chromium import missing_chromium

BREADTH = pytest.mark.suite("breadth")
NAMES = (
    "algebra", "arithmetic", "code", "connect_four", "countdown", "guess_number", "negotiation", "sql", "terminal",
    "word_problems", "wordle",
)  # fmt: skip
LEVELS = (
    "algebra-hard", "code-easy", "code-hard", "connect_four-easy", "connect_four-hard", "guess_number-tiny",
    "guess_number-shaped", "negotiation-shared", "sql-hard", "terminal-hard", "wordle-easy", "wordle-hard",
    "wordle-sparse",
)  # fmt: skip


async def check(player: Any, name: str, count: int) -> None:
    for index in range(count):
        task = player.task(name, "test", index)
        [episode] = await player.start(name, "test", index, seed=index)
        await player.play(episode.episode, player.oracle(name, "test", index))
        best, _ = await player.rewards(episode.episode)
        ways = player.host.catalog[name].cls.equivalents(task)
        assert len(ways) >= 2
        for way, policy in ways.items():
            [episode] = await player.start(name, "test", index, seed=index)
            await player.play(episode.episode, policy)
            total, _ = await player.rewards(episode.episode)
            assert total.value == best.value == 1.0, (way, index)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=BREADTH) if name in ("code", *LEVELS) else name for name in (*NAMES, *LEVELS)]
)
async def test_every_other_right_way_earns_what_the_oracle_earns(player: Any, name: str) -> None:
    await check(player, name, 2 if name.startswith("terminal") else 3)


@pytest.mark.suite("browser")
@pytest.mark.timeout(600)
@pytest.mark.skipif(missing_chromium() is not None, reason=str(missing_chromium()))
@pytest.mark.parametrize("name", ["browser"])
async def test_every_other_path_through_the_sites_earns_what_the_oracle_earns(player: Any, name: str) -> None:
    await check(player, name, 4)
