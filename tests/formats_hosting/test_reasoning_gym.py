"""`reasoning-gym:` poses the generators' problems and pays what their `score_answer` gives."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hosted_peers import hosted, record, spec_of

from ludus.client import connect
from ludus.formats.inside.reasoning_gym_adapter import Problem
from ludus.protocol.errors import AuthoringError
from ludus.protocol.lifecycle import EndReason
from ludus.server.tasks.formats import parse_source, resolve
from ludus.testing import play
from ludus.validation.core.server_process import serving

pytestmark = [pytest.mark.suite("formats"), pytest.mark.timeout(300)]
"""The interpreters of peers take long to import their packages on a busy machine."""
SAMPLE = ("leg_counting", "prime_factorization", "boxnet", "graph_color", "chain_sum")
"""Ordinary generators, two whose scorers raise for malformed answers, and two without reference answers."""
PROBLEMS = 2
ANSWERS = 10
TEST_SEED = 2_000_000_000


def orders_of(names: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "seed": 3, "size": 50, "index": index, "answers": ANSWERS}
        for name in names
        for index in range(PROBLEMS)
    ]


async def replay(environments: dict[str, Any], recorded: list[dict[str, Any]]) -> int:
    """Play what was recorded and return the number of answers."""
    count = 0
    for name, environment in environments.items():
        async with play(environment) as world:
            for problem in recorded:
                if problem["order"]["name"] != name:
                    continue
                for answer, score, raised in problem["scores"]:
                    episode = await world.start(index=problem["order"]["index"], split="train")
                    assert episode.prompt == problem["question"], name
                    await episode.answer(answer)
                    assert episode.end_reason == EndReason.SUBMITTED
                    assert episode.reward == (0.0 if raised else score), (name, answer)
                    count += 1
    return count


async def test_scores_of_a_sample_are_those_of_score_answer() -> None:
    recorded = record("gymnasium", "reasoning_gym_golden.py", orders_of(SAMPLE))
    with hosted("gymnasium", "reasoning-gym:" + "+".join(SAMPLE), seed=3, size=50) as found:
        assert [environment.name for environment in found] == list(SAMPLE)
        played = await replay({environment.described.name: environment for environment in found}, recorded)
    assert played == len(SAMPLE) * PROBLEMS * ANSWERS
    assert any(raised for problem in recorded for _, _, raised in problem["scores"])


@pytest.mark.timeout(1800)
@pytest.mark.suite("formats")
async def test_scores_of_all_generators_are_those_of_score_answer() -> None:
    with hosted("gymnasium", "reasoning-gym:all", seed=3, size=50) as found:
        names = [environment.described.name for environment in found]
        recorded = await asyncio.to_thread(record, "gymnasium", "reasoning_gym_golden.py", orders_of(names))
        played = await replay({environment.described.name: environment for environment in found}, recorded)
        assert found[0].process.starts == 1
    assert played == len(names) * PROBLEMS * ANSWERS
    assert len(names) >= 100


async def test_all_generators_share_one_interpreter_and_one_dataset_of_a_split() -> None:
    with hosted("gymnasium", "reasoning-gym:all") as found:
        assert len(found) == 105
        assert len({id(environment.process) for environment in found}) == 1
        assert len({environment.name for environment in found}) == 105
        names = {environment.name: environment for environment in found}
        async with play(names["word_ladder"]) as world:
            for index in range(3):
                episode = await world.start(index=index, split="train")
                await episode.answer("no")
        assert found[0].process.starts == 1


async def test_the_command_line_serves_a_generator() -> None:
    spec = spec_of("gymnasium", "reasoning-gym:leg_counting", size=7)
    (recorded,) = record(
        "gymnasium",
        "reasoning_gym_golden.py",
        [{"name": "leg_counting", "seed": TEST_SEED, "size": 7, "index": 2, "answers": 1}],
    )
    async with serving([spec]) as server, connect(server.url) as client:
        (info,) = await client.environments()
        assert (info.name, info.version) == ("leg_counting", "0.1.25")
        assert [(split.name, split.count) for split in info.splits] == [("train", 7), ("test", 7)]
        assert "Not promised: distinct problems" in info.description
        episode = await client.environment("leg_counting").start(split="test", index=2)
        assert "answer" not in episode.task.fields
        reward = (await episode.grade(recorded["scores"][0][0])).reward
        assert reward is not None
        assert reward.value == 1.0


async def test_train_and_test_have_different_seeds_and_an_option_shifts_both() -> None:
    wanted = {}
    for seed in (5, 5 + TEST_SEED):
        order = {"name": "leg_counting", "seed": seed, "size": 9, "index": 1, "answers": 0}
        (wanted[seed],) = record("gymnasium", "reasoning_gym_golden.py", [order])
    with hosted("gymnasium", "reasoning-gym:leg_counting", seed=5, size=9) as (environment,):
        async with play(environment) as world:
            prompts = [(await world.start(index=1, split=split)).prompt for split in ("train", "test")]
    assert prompts == [wanted[5]["question"], wanted[5 + TEST_SEED]["question"]]
    assert prompts[0] != prompts[1]


async def test_a_configuration_and_a_level_make_other_problems() -> None:
    config = {"min_animals": 2, "max_animals": 2}
    order = {"name": "leg_counting", "seed": 0, "size": 500, "config": config, "index": 0, "answers": 0}
    (wanted,) = record("gymnasium", "reasoning_gym_golden.py", [order])
    with hosted("gymnasium", "reasoning-gym:leg_counting", config=config) as (environment,):
        async with play(environment) as world:
            assert (await world.start(split="train")).prompt == wanted["question"]
    level = {"min_animals": 1, "max_animals": 4, "min_instances": 2, "max_instances": 32}
    order["config"] = {**level, "max_animals": 3}
    (wanted,) = record("gymnasium", "reasoning_gym_golden.py", [order])
    with hosted("gymnasium", "reasoning-gym:leg_counting", level=3, config={"max_animals": 3}) as (environment,):
        async with play(environment) as world:
            assert (await world.start(split="train")).prompt == wanted["question"]


async def test_with_tags_the_prompt_asks_for_them_and_the_last_one_is_scored() -> None:
    order = {"name": "leg_counting", "seed": 0, "size": 500, "index": 0, "answers": 1}
    (recorded,) = record("gymnasium", "reasoning_gym_golden.py", [order])
    right = recorded["scores"][0][0]
    with hosted("gymnasium", "reasoning-gym:leg_counting", answer="tags") as (environment,):
        async with play(environment) as world:
            for text, reward in ((f"<answer>3</answer> no: <answer> {right} </answer>", 1.0), (right, 0.0)):
                episode = await world.start(split="train")
                assert [message.role for message in episode.remote.prompt] == ["system", "user"]
                assert "<answer>answer here</answer>" in episode.prompt
                await episode.answer(text)
                assert episode.reward == reward


async def test_an_answer_that_makes_the_scorer_raise_or_work_too_long_earns_0() -> None:
    with hosted("gymnasium", "reasoning-gym:prime_factorization", score_seconds=0.5) as (environment,):
        async with play(environment) as world:
            for answer in ("x", "()", " × ".join(["9" * 4000] * 150)):
                episode = await world.start(split="train")
                await episode.answer(answer)
                assert (episode.reward, episode.end_reason) == (0.0, EndReason.SUBMITTED)


def test_a_scorer_that_raises_for_the_reference_answer_too_is_at_fault_itself() -> None:
    class Broken:
        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"question": "?", "answer": "1"}

        def score_answer(self, answer: Any, entry: dict[str, Any]) -> float:
            raise LookupError("no scores today")

    adapter: Any = SimpleNamespace(options={}, utils=SimpleNamespace(extract_answer=None))
    with pytest.raises(LookupError, match="no scores today"):
        Problem(adapter, Broken(), 0).grade("2")


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("leg_countin", {}, "there is no generator 'leg_countin'; did you mean 'leg_counting'?"),
        ("composite", {}, "cannot be served: it has no problems of its own"),
        ("leg_counting", {"config": {"animals": 3}}, "has no field 'animals'; its fields are: min_animals"),
        ("leg_counting", {"config": {"seed": 3}}, "'seed' is an option of its own"),
        ("leg_counting", {"config": {"min_animals": 0}}, "refuses its configuration: min_animals must be positive"),
        ("acre", {"level": 1}, "has no curriculum, so the option level cannot be used"),
        ("caesar_cipher", {"level": 5}, "refuses its configuration at level 5: rotation must be in range"),
        ("all", {"config": {"min_animals": 2}}, "the option config is for one generator"),
        ("leg_counting", {"size": 0}, "option size"),
        ("leg_counting", {"curriculum": 2}, "has no option 'curriculum'"),
    ],
)
def test_a_target_or_an_option_that_cannot_be_used_is_refused(
    target: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AuthoringError) as refusal, hosted("gymnasium", f"reasoning-gym:{target}", **options):
        pass
    assert message in refusal.value.message


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    source = parse_source("reasoning-gym:all")
    assert source is not None
    with pytest.raises(AuthoringError, match=r"needs the package 'reasoning-gym'.* -m pip install reasoning-gym"):
        resolve(source)


async def test_with_all_a_level_leaves_out_generators_that_do_not_have_it() -> None:
    with hosted("gymnasium", "reasoning-gym:all", level=5) as found:
        names = {environment.described.name for environment in found}
        assert "leg_counting" in names
        assert not names & {"acre", "caesar_cipher", "composite"}


@pytest.mark.timeout(1800)
async def test_the_oracle_earns_1_with_every_generator_that_gives_an_answer() -> None:
    with hosted("gymnasium", "reasoning-gym:all", size=20) as found:
        unsolvable = {environment.name for environment in found if not environment.described.solvable}
        assert unsolvable == {"boxnet", "rush_hour"}
        for environment in found:
            if environment.name in unsolvable:
                continue
            async with play(environment) as world:
                assert (await world.oracle(index=1, split="train")).reward == 1.0, environment.name
