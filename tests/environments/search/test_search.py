"""Episodes of `search`: what its tools show and refuse, what earns a reward, and what does not."""

from __future__ import annotations

import random
from typing import Any

import pytest
from search_reader import read_and_guess

from ludus.environments.search import Search, SearchTask
from ludus.environments.search.environment import deciding_of, evidence_of
from ludus.environments.search.reader import PART_LENGTH, code_of
from ludus.environments.search.world import open_world
from ludus.protocol import StepResult, text_of
from ludus.server import DIFFICULTIES, Difficulty

each_difficulty = pytest.mark.parametrize("difficulty", DIFFICULTIES)


async def proved(player: Any, task: SearchTask, episode: str, *, leave_out: int = 0) -> list[str]:
    """Search for and open one page for each needed fact, without the first few, and return their ids."""
    codes = []
    for need in evidence_of(task)[leave_out:]:
        found = await player.step(episode, "search", query=need[0])
        codes.append(code_of(text_of(found.content), need[0]))
        await player.step(episode, "open", page=codes[-1])
    return codes


async def submitted(player: Any, episode: str, answer: str, citations: list[str]) -> dict[str, float]:
    """Submit an answer and return the components of the reward."""
    result = await player.step(episode, "submit", answer=answer, citations=citations)
    assert result.ended, text_of(result.content)
    total, _ = await player.rewards(episode)
    return {name: part.value for name, part in total.components.items()} | {"total": total.value}


async def begun(player: Any, name: str, index: int) -> tuple[SearchTask, str]:
    """Start an episode of a training task."""
    [episode] = await player.start(name, "train", index)
    return player.task(name, "train", index), episode.episode


async def refusal(player: Any, episode: str, tool: str, **arguments: Any) -> str:
    """The message of a refused call."""
    result: StepResult = await player.step(episode, tool, **arguments)
    assert result.error is not None
    assert result.reward is None
    return text_of(result.content)


@each_difficulty
async def test_the_right_answer_with_one_page_for_each_fact_earns_everything(
    player: Any, difficulty: Difficulty
) -> None:
    task, episode = await begun(player, f"search-{difficulty}", 7)
    codes = await proved(player, task, episode)
    assert (await submitted(player, episode, task.solution, codes))["total"] == 1.0


async def test_missing_evidence_and_needless_pages_cost(player: Any) -> None:
    task, episode = await begun(player, "search-hard", 3)
    codes = await proved(player, task, episode, leave_out=1)
    found = await submitted(player, episode, task.solution, codes)
    share = (task.hops - 1) / task.hops
    assert (found["answer"], found["recall"], found["precision"], found["total"]) == (1.0, share, share, share)

    task, episode = await begun(player, "search-hard", 3)
    codes = await proved(player, task, episode)
    world = open_world(task.world)
    evidence = {title for need in evidence_of(task) for title in need}
    needless = [page.code for page in world.pages if page.title not in evidence][:4]
    for code in needless:
        await player.step(episode, "open", page=code)
    found = await submitted(player, episode, task.solution, [*codes, *needless])
    assert (found["answer"], found["recall"]) == (1.0, 1.0)
    assert found["precision"] == task.hops / (task.hops + 4)
    assert found["total"] == 0.75 + 0.25 * found["precision"]


async def test_a_right_answer_without_a_page_that_states_it_earns_nothing(player: Any) -> None:
    task, episode = await begun(player, "search-medium", 5)
    codes = await proved(player, task, episode)
    found = await submitted(player, episode, task.solution, codes[:-1])
    assert (found["right"], found["total"]) == (1.0, 0.0)


async def test_a_wrong_answer_with_all_evidence_earns_nothing(player: Any) -> None:
    task, episode = await begun(player, "search-medium", 5)
    codes = await proved(player, task, episode)
    found = await submitted(player, episode, "Nowhere", codes)
    assert (found["right"], found["recall"], found["precision"], found["total"]) == (0.0, 0.0, 0.0, 0.0)


async def test_pages_that_were_not_opened_cannot_be_cited(player: Any) -> None:
    task, episode = await begun(player, "search-easy", 2)
    titles = [need[0] for need in evidence_of(task)]
    await player.step(episode, "search", query=titles[0])
    assert "not opened" in await refusal(player, episode, "submit", answer=task.solution, citations=titles)
    codes = await proved(player, task, episode)
    assert (await submitted(player, episode, task.solution, codes))["total"] == 1.0


async def test_another_episode_does_not_lend_its_opened_pages(player: Any) -> None:
    task, other = await begun(player, "search-easy", 2)
    codes = await proved(player, task, other)
    _, episode = await begun(player, "search-easy", 2)
    assert "not opened" in await refusal(player, episode, "submit", answer=task.solution, citations=codes)


async def test_a_page_cited_twice_counts_once(player: Any) -> None:
    task, episode = await begun(player, "search-easy", 2)
    codes = await proved(player, task, episode)
    titles = [need[0] for need in evidence_of(task)]
    assert (await submitted(player, episode, task.solution, [*codes, *titles]))["total"] == 1.0


async def test_another_name_that_the_page_gives_is_right(player: Any) -> None:
    for index in range(0, 600):
        task = player.task("search-easy", "train", index)
        names = open_world(task.world).names.get(task.solution) if task.form == "name" else None
        if names:
            break
    else:
        raise AssertionError("no answer has another name")
    [started] = await player.start("search-easy", "train", index)
    codes = await proved(player, task, started.episode)
    assert (await submitted(player, started.episode, names[1], codes))["total"] == 1.0


async def test_mistakes_are_refused_with_what_to_do(player: Any) -> None:
    task, episode = await begun(player, "search-easy", 2)
    title = evidence_of(task)[0][0]
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("search", {"query": "the of and"}, "other words"),
        ("search", {"query": "a" * 301}, "at most 300"),
        ("open", {"page": ""}, "exact title"),
        ("search", {"query": title, "page": 6}, "5"),
        ("search", {"query": title, "page": 0}, "1"),
        ("open", {"page": "no such page"}, "'no such page'"),
        ("open", {"page": title, "part": 9}, "1 part"),
        ("open", {"page": title, "part": -1}, "1 part"),
        ("submit", {"answer": " ", "citations": [title]}, "1 to 200"),
        ("submit", {"answer": "x" * 201, "citations": [title]}, "1 to 200"),
        ("submit", {"answer": "x", "citations": []}, "1 to 10"),
        ("submit", {"answer": "x", "citations": [title] * 11}, "1 to 10"),
        ("submit", {"answer": "x", "citations": ["nope"]}, "'nope'"),
    ]
    for tool, arguments, expected in calls:
        message = await refusal(player, episode, tool, **arguments)
        assert expected in message, (tool, arguments, message)
        assert len(message) < 300
    codes = await proved(player, task, episode)
    assert (await submitted(player, episode, task.solution, codes))["total"] == 1.0


async def test_pages_open_by_id_title_or_link_and_in_bounded_parts(player: Any) -> None:
    task, episode = await begun(player, "search", 0)
    world = open_world(task.world)
    page = max(world.pages, key=lambda one: len(one.text))
    shown = [
        text_of((await player.step(episode, "open", page=name)).content)
        for name in (page.code, page.title, page.title.upper(), f"[[{page.title}]]", f"[[{page.title}|it]]")
    ]
    assert len(set(shown)) == 1
    assert all(len(one.text) <= PART_LENGTH for one in world.pages) or "part 1 of" in shown[0]


async def test_results_come_in_pages_without_repetition(player: Any) -> None:
    _, episode = await begun(player, "search", 0)
    lines = []
    for page in range(1, 6):
        found = text_of((await player.step(episode, "search", query="river bridge town", page=page)).content)
        assert found.startswith(f"Results, page {page} of 5:")
        assert len(found) < 2500
        lines += found.split("\n")[1:]
    assert len({line[:7] for line in lines}) == len(lines) == 40


async def test_an_episode_ends_after_forty_calls(player: Any) -> None:
    _, episode = await begun(player, "search", 0)
    results = [await player.step(episode, "search", query="river") for _ in range(40)]
    assert [one.ended for one in results] == [False] * 39 + [True]
    assert (await player.rewards(episode))[0].value == 0.0


@each_difficulty
async def test_every_exploit_earns_nothing(player: Any, difficulty: Difficulty) -> None:
    name = f"search-{difficulty}"
    for index in range(2):
        task = player.task(name, "validation", index)
        exploits = Search.exploits(task)
        assert len(exploits) >= 30
        for what, policy in exploits.items():
            [episode] = await player.start(name, "validation", index)
            await player.play(episode.episode, policy)
            assert (await player.rewards(episode.episode))[0].value == 0.0, what


@each_difficulty
@pytest.mark.parametrize("pages", [3, 8])
async def test_a_mediocre_reader_stays_near_zero(player: Any, difficulty: Difficulty, pages: int) -> None:
    name, total = f"search-{difficulty}", 0.0
    for index in range(40):
        [episode] = await player.start(name, "validation", index)
        await player.play(episode.episode, read_and_guess(player.task(name, "validation", index), pages))
        total += (await player.rewards(episode.episode))[0].value
    assert total / 40 <= 0.05


def test_random_training_tasks_have_the_hops_of_their_level() -> None:
    rng = random.Random(2)
    for _ in range(6):
        index = rng.randrange(2**53)
        task = Search.load_task("train", index)
        assert task.difficulty == DIFFICULTIES[index % 3]
        assert len(evidence_of(task)) == task.hops


async def test_the_page_of_the_answer_alone_pays_its_share_of_the_proof(player: Any) -> None:
    values = []
    for index in range(24):
        task, episode = await begun(player, "search-hard", index)
        codes = await proved(player, task, episode)
        found = await submitted(player, episode, task.solution, codes[-1:])
        assert found["total"] in (0.0, 1 / task.hops)
        values.append(found["total"])
    assert sum(values) / len(values) <= 0.25


async def test_one_side_of_a_comparison_proves_nothing(player: Any) -> None:
    compared = 0
    for index in range(40):
        task, episode = await begun(player, "search-hard", index)
        deciding = deciding_of(task)
        if len(deciding) < 2:
            continue
        compared += 1
        codes = await proved(player, task, episode)
        cited = [code for place, code in enumerate(codes) if place != deciding[0]]
        assert (await submitted(player, episode, task.solution, cited))["total"] == 0.0
    assert compared >= 8
