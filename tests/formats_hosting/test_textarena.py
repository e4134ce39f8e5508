"""`textarena:` plays what TextArena's own loop plays, with scripted opponents and the same rewards."""

from __future__ import annotations

from typing import Any

import pytest
from hosted_peers import hosted, record, spec_of

from ludus.client import connect
from ludus.formats.inside.textarena_adapter import ENDED_EARLY, moves_of
from ludus.formats.inside.textarena_games import GAMES
from ludus.protocol.errors import AuthoringError, EpisodeFailed
from ludus.protocol.lifecycle import EndReason
from ludus.server.tasks.formats import parse_source, resolve
from ludus.testing import play
from ludus.validation.core.server_process import serving

pytestmark = [pytest.mark.suite("formats"), pytest.mark.timeout(300)]
"""The interpreters of peers take long to import their packages on a busy machine."""
SAMPLE = (
    "2048-v0", "Blackjack-v0", "FrozenLake-v0", "GuessTheNumber-v0", "Mastermind-v0", "Minesweeper-v0",
    "Secretary-v0", "TicTacToe-v0", "ConnectFour-v0", "Nim-v0", "KuhnPoker-v0", "PigDice-v0", "Snake-v0",
)  # fmt: skip
TURNS = 8
EPISODES = 8


def orders_of(names: Any, episodes: int, player: int = 0) -> list[dict[str, Any]]:
    return [
        {"id": name, "players": GAMES[name], "player": player, "seed": seed, "turns": TURNS}
        for name in names
        for seed in range(episodes)
    ]


async def replay(environments: list[Any], recorded: list[dict[str, Any]]) -> int:
    """Play what was recorded, compare, and return the number of episodes."""
    count = 0
    for environment in environments:
        async with play(environment) as world:
            for wanted in recorded:
                if wanted["order"]["id"] == environment.described.name:
                    await _replay(world, wanted)
                    count += 1
    return count


async def _replay(world: Any, wanted: dict[str, Any]) -> None:
    where = str(wanted["order"])
    episode = await world.start(index=wanted["order"]["seed"], split="train")
    if wanted.get("done") and not wanted["actions"]:
        assert episode.prompt == ENDED_EARLY
        assert (await episode.call("act", action="")).reward == wanted["reward"]
        return
    seen = [episode.prompt]
    last = None
    for number, action in enumerate(wanted["actions"]):
        try:
            last = await episode.call("act", action=action)
        except EpisodeFailed:
            assert number == len(wanted["actions"]) - 1, where
            assert wanted.get("raised") or isinstance(wanted["reward"], str), where
            await episode.refresh()
            assert episode.reward is None
            return
        assert last.error is None, where
        if not last.ended:
            seen.append(last.text)
    assert "raised" not in wanted, where
    assert len(seen) == len(wanted["seen"]), where
    assert seen == [_ending(part, whole) for part, whole in zip(seen, wanted["seen"], strict=True)], where
    if wanted["done"]:
        assert last is not None
        assert (episode.end_reason, episode.reward) == (EndReason.COMPLETED, float(wanted["reward"])), where
    else:
        assert not episode.ended, where
        await episode.close()


def _ending(part: str, whole: str) -> str:
    """Return as much of the end of a whole observation as a part of it has characters."""
    return whole[len(whole) - len(part) :]


@pytest.mark.parametrize("games", [SAMPLE[:5], SAMPLE[5:9], SAMPLE[9:]], ids=["some", "more", "rest"])
async def test_episodes_of_a_sample_are_those_of_textarenas_own_loop(games: tuple[str, ...]) -> None:
    recorded = record("textarena", "textarena_golden.py", orders_of(games, EPISODES))
    with hosted("textarena", "textarena:" + "+".join(games)) as found:
        assert await replay(found, recorded) == len(games) * EPISODES
        assert found[0].process.starts == 1


@pytest.mark.timeout(1800)
@pytest.mark.suite("formats")
async def test_episodes_of_all_games_are_those_of_textarenas_own_loop() -> None:
    recorded = record("textarena", "textarena_golden.py", orders_of(GAMES, 3))
    with hosted("textarena", "textarena:all") as found:
        assert await replay(found, recorded) == len(GAMES) * 3


async def test_the_agent_can_be_another_player_and_see_the_whole_history() -> None:
    recorded = record("textarena", "textarena_golden.py", orders_of(["TicTacToe-v0"], 3, player=1))
    with hosted("textarena", "textarena:TicTacToe-v0", player=1, history="full") as (environment,):
        assert "played as player 1 of 2" in environment.__doc__
        async with play(environment) as world:
            for wanted in recorded:
                episode = await world.start(index=wanted["order"]["seed"], split="train")
                seen = [episode.prompt]
                for action in wanted["actions"]:
                    step = await episode.call("act", action=action)
                    seen += [] if step.ended else [step.text]
                assert seen == wanted["seen"]
                if wanted["done"]:
                    assert episode.reward == wanted["reward"]
                else:
                    await episode.close()


async def test_opponents_can_always_say_the_same() -> None:
    with hosted("textarena", "textarena:IteratedPrisonersDilemma-v0", opponent_text="[Cooperate]") as (environment,):
        assert "Not promised: good opponents (each opponent always says '[Cooperate]'" in environment.__doc__
        async with play(environment) as world:
            episode = await world.start(split="train")
            step = await episode.call("act", action="[Defect]")
            for _ in range(40):
                if step.ended:
                    break
                step = await episode.call("act", action="[Defect]")
            assert (episode.end_reason, episode.reward) == (EndReason.COMPLETED, 1.0)


async def test_the_command_line_serves_a_game() -> None:
    async with serving([spec_of("textarena", "textarena:TicTacToe-v0")]) as server, connect(server.url) as client:
        (info,) = await client.environments()
        assert (info.name, info.version) == ("tictactoe-v0", "0.7.4")
        assert [(split.name, split.count) for split in info.splits] == [("train", None), ("test", 1000)]
        assert "each opponent chooses at random, by the seed, among the moves" in info.description
        episode = await client.environment(info.name).start(split="train", index=0)
        assert "seed" not in episode.task.fields
        result: Any = None
        for _ in range(2):
            result = await episode.call("act", action="no move")
        assert result.reward is not None
        assert result.reward.value == -1.0


async def test_equal_seeds_are_equal_games_also_in_threads_of_one_process() -> None:
    with hosted("textarena", "textarena:2048-v0", isolation="thread") as (environment,):
        async with play(environment) as world:
            first = await world.start(index=4, split="train")
            second = await world.start(index=4, split="train")
            assert first.prompt == second.prompt
            for move in ("[up]", "[left]", "[down]", "[right]"):
                texts = {(await episode.call("act", action=move)).text for episode in (first, second)}
                assert len(texts) == 1


def test_moves_are_read_after_the_last_heading() -> None:
    text = "[Player 0] [4]\nAvailable Moves: '[1]', '[2]'\n[GAME] You chose.\nAvailable Moves: '[3]', '[3]', '[5 up]'"
    assert moves_of(text, {"[Player 0]", "[GAME]"}) == ["[3]", "[5 up]"]
    assert moves_of("[GAME] say [yes] or [no]", {"[GAME]"}) == ["[yes]", "[no]"]
    assert moves_of("no move", set()) == ["[pass]"]


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("TicTacTo-v0", {}, "TextArena has no game 'TicTacTo-v0'; did you mean 'TicTacToe-v0'?"),
        ("Chess-v0", {}, "TextArena's game Chess-v0 does not work here with 2 players: SyntaxError"),
        ("TicTacToe-v0", {"players": 3}, "does not work here with 3 players: AssertionError"),
        ("TicTacToe-v0", {"player": 2}, "has the players 0 to 1, so the option player cannot be 2"),
        ("TicTacToe-v0", {"make": {"size": 4}}, "unexpected keyword argument 'size'"),
        ("all", {"players": 2}, "the options make and players are for one game"),
        ("TicTacToe-v0", {"history": "old"}, "option history: 'old' is not one of"),
        ("TicTacToe-v0", {"opponents": 2}, "has no option 'opponents'"),
    ],
)
def test_a_target_or_an_option_that_cannot_be_used_is_refused(
    target: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AuthoringError) as refusal, hosted("textarena", f"textarena:{target}", **options):
        pass
    assert message in refusal.value.message


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    source = parse_source("textarena:TicTacToe-v0")
    assert source is not None
    with pytest.raises(AuthoringError, match=r"needs the package 'textarena'.* -m pip install textarena"):
        resolve(source)


async def test_all_publishes_the_games_that_work() -> None:
    with hosted("textarena", "textarena:all") as found:
        assert [environment.described.name for environment in found] == list(GAMES)
        assert len(found) == 72
        assert len({id(environment.process) for environment in found}) == 1
