"""`cube:`: benchmarks of CUBE played here give what CUBE's own episode loop gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_episodes import hosted, hosting, record, shown
from peer_clients import python_of

from ludus.protocol.errors import AuthoringError, LudusError
from ludus.protocol.lifecycle import EndReason
from ludus.testing import play

pytestmark = [pytest.mark.suite("formats"), pytest.mark.timeout(200)]

CRATES = "cube:examples/formats/cube/crates.py:CratesConfig"
FAULTS = f"cube:{Path(__file__).parent / 'peers' / 'cube_faults.py'}"
PLAYED = {"crates": (CRATES, 80), "arithmetic-cube": ("cube:arithmetic-cube", 40)}
"""Benchmarks, and how many episodes of each are compared."""
PUBLISHED = {"submit_answer": "submit_answer_2"}
"""The published names of actions whose own names Ludus takes."""


@pytest.fixture
def of() -> Iterator[Any]:
    """Return environments in CUBE's interpreter."""
    with hosting("cube") as make:
        yield make


async def differences(environment: Any, recorded: list[dict[str, Any]]) -> list[Any]:
    """Play the recorded actions and return what differs."""
    found: list[Any] = []
    async with play(environment) as world:
        for episode in recorded:
            local = await world.start(split=episode["split"], index=episode["index"])
            if (local.remote.task.id, shown(local.remote.prompt[0].content)) != (episode["id"], episode["start"]):
                found.append((local.prompt, episode["start"]))
            for step in episode["steps"]:
                published = PUBLISHED.get(step["action"][0]) or str(step["action"][0])
                made = await local.call(published, **step["action"][1])
                got = (shown(made.result.content), made.ended, "error" in made.result.metadata)
                if made.error is not None or got != (step["shown"], step["done"], step["failed"]):
                    found.append((got, step))
                if local.ended and local.end_reason is not EndReason.COMPLETED:
                    found.append(local.end_reason)
            if not local.ended:
                await local.close()
            if local.reward != pytest.approx(episode["reward"], abs=1e-12):
                found.append((local.reward, episode["reward"]))
    return found


@pytest.mark.parametrize("name", list(PLAYED))
async def test_episodes_are_those_that_cubes_own_loop_plays(of: Any, name: str) -> None:
    spec, count = PLAYED[name]
    recorded = record("cube", "cube_golden.py", {"benchmark": name, "episodes": count})
    assert len(recorded) == count
    assert len({one["reward"] for one in recorded}) > (4 if name == "crates" else 1)
    assert {one["done"] for one in recorded} == ({True, False} if name == "crates" else {True})
    assert await differences(of(spec), recorded) == []


async def test_a_final_message_ends_the_task_and_is_worth_its_evaluation(of: Any) -> None:
    async with play(of(CRATES)) as world:
        episode = await world.start(split="train", index=0)
        assert (await episode.move(source="left", target="right")).reward == 0.5
        assert (await episode.move(source="left", target="middle")).reward == 0.0
        graded = await episode.answer("Half of it.")
        assert graded is not None
        assert (graded.value, episode.reward, episode.ended) == (0.0, 0.5, True)


async def test_splits_subsets_and_tasks_are_those_of_the_benchmark(of: Any) -> None:
    environment = of(CRATES)
    assert {name: (split.count, split.type) for name, split in environment.splits.items()} == {
        "train": (7, "train"), "test": (3, "test"),
    }  # fmt: skip
    assert environment.described.package == "cube-standard 0.1.0rc10, crates 1"
    assert not environment.seedable
    assert set(environment.described.not_promised) == {
        "seeds", "parallel calls", "actions that change", "text of the final message",
    }  # fmt: skip
    small = of(CRATES + "#subset=small")
    assert {name: split.count for name, split in small.splits.items()} == {"train": 5}
    chosen = of(CRATES + '#tasks=["six-crates"%2C"two-apart"]')
    async with play(chosen) as world:
        episode = await world.start(split="test", index=0)
        assert episode.remote.task.id == "six-crates"
        assert set(episode.tools) == {"move", "look", "photograph", "final_step"}
        assert episode.remote.task.fields == {}


async def test_faults_end_one_episode_unscored_and_no_other(of: Any) -> None:
    async with play(of(f"{FAULTS}:FaultsConfig")) as world:
        for name in ("reset", "several"):
            with pytest.raises(LudusError):
                await world.start(split="test", index=["plain", "reset", "several"].index(name))
        other = await world.start(split="test", index=0)
        for what in ("exit", "evaluate", "nan", "hang up"):
            episode = await world.start(split="test", index=0)
            with pytest.raises(LudusError):
                await episode.do(what=what)
            await episode.refresh()
            assert (episode.end_reason, episode.reward) == (EndReason.ENVIRONMENT_ERROR, None), what
        shared = await other.do(what="shared")
        assert (shared.text, shared.ended) == ("ready", False)
        failed = await other.do(what="raise")
        assert (failed.text, failed.result.metadata["error"], failed.ended) == (
            "Action failed — RuntimeError: broken action", "RuntimeError: broken action", False,
        )  # fmt: skip
        ended = await other.do(what="win")
        assert (ended.reward, ended.ended) == (1.0, True)


async def test_an_action_that_raises_fails_the_episode_if_the_option_says_so(of: Any) -> None:
    async with play(of(f"{FAULTS}:FaultsConfig#tool_errors=fail")) as world:
        episode = await world.start(split="test", index=0)
        with pytest.raises(LudusError):
            await episode.do(what="raise")
        await episode.refresh()
        assert (episode.end_reason, episode.reward) == (EndReason.ENVIRONMENT_ERROR, None)


async def test_terminal_bench_is_loaded_from_its_package_and_unscored_without_its_data(of: Any, tmp_path: Path) -> None:
    environment = of("cube:terminalbench2-cube#install=false,subset=easy")
    assert environment.name == "terminalbench2-cube"
    assert environment.splits["test"].count == 4
    async with play(environment) as world:
        with pytest.raises(LudusError):
            await world.start(split="test", index=0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cube:nosuch", "no benchmark named 'nosuch' is installed; there is: arithmetic-cube, terminalbench2-cube"),
        ("cube:examples/nosuch.py:A", "no file 'examples/nosuch.py'"),
        ("cube:examples/formats/cube/crates.py:YARDS", "is no BenchmarkConfig"),
        (CRATES + "#subset=large", "'crates' has no subset 'large'; it has: small"),
        (CRATES + '#tasks=["a"]', "'crates' has no task 'a'"),
        (CRATES + '#make={"size":3}', "CratesConfig has no field 'size'"),
        (CRATES + '#make={"task_ids":3}', "the option make of .* failed: ValidationError"),
        (CRATES + "#infra=examples/formats/cube/crates.py:Crates", "the option infra: .* is no InfraConfig"),
        (CRATES + "#instal=false", "has no option 'instal'; did you mean 'install'"),
        (f"{FAULTS}:BrokenConfig", r"install\(\) of .* failed: OSError: no data here"),
        (f"{FAULTS}:BrokenConfig#install=false", r"make\(\) of .* failed: RuntimeError: no server"),
    ],
)
def test_a_wrong_target_or_option_is_explained(spec: str, message: str) -> None:
    with pytest.raises(AuthoringError, match=message):
        hosted(spec, "cube")


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    python = python_of("aviary")
    with pytest.raises(AuthoringError, match=f"needs the package 'cube-standard'.*{python} -m pip install cube-st"):
        hosted(f"cube:arithmetic-cube#python={python}")
