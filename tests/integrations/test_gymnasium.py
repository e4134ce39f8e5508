"""Gymnasium's own checker, `make` and vector environments use exported packages, and play as our client does."""

from __future__ import annotations

import asyncio
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from exported import WORLD, exported
from recorded_play import differences, guesses, recorded, refusals, sums
from terminal import running_episodes, serving

pytestmark = [pytest.mark.suite("integrations"), pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
PROGRAM = "gymnasium_play.py"
"""The program in `peers/`."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server with the built-in environments and `sums`, without open episodes afterwards."""
    with serving("guess_number", "wordle", "countdown", f"{WORLD}:Sums") as address:
        yield address
        assert running_episodes(address) == 0, "episodes are still open"


@pytest.fixture(scope="module")
def packages(url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Exported packages: their folders, modules and ids."""
    folder = tmp_path_factory.mktemp("packages")
    given: dict[str, Any] = {"folders": [], "modules": [], "ids": []}
    for name, environment, more in (
        ("guess_number", "guess_number", ()),
        ("wordle", "wordle", ()),
        ("countdown", "countdown", ()),
        ("sums", "sums", ()),
        ("shaped", "guess_number-shaped", ()),
        ("numbers", "guess_number", ("--action", "guess:number=0..200000")),
    ):
        exported("gymnasium", url, environment, folder / name, "--name", name, *more)
        given["folders"].append(str(folder / name))
        given["modules"].append(f"ludus_{name}")
        given["ids"].append(f"ludus/{name}-v0")
    return given


def test_exported_packages_pass_the_environment_checker_without_a_warning(
    packages: dict[str, Any], run_peer: Callable[..., dict[str, Any]]
) -> None:
    report = run_peer("gymnasium", PROGRAM, {"run": "checks", **packages})
    assert report["checked"] == packages["ids"]


def test_episodes_through_gymnasium_equal_those_of_our_client(
    url: str, packages: dict[str, Any], run_peer: Callable[..., dict[str, Any]]
) -> None:
    async def play() -> dict[str, list[dict[str, Any]]]:
        return {
            "ludus/shaped-v0": await recorded(url, "guess_number-shaped", guesses, range(20)),
            "ludus/sums-v0": await recorded(url, "sums", sums, range(20)),
            "ludus/numbers-v0": await recorded(url, "guess_number", refusals, range(2)),
        }

    ours = asyncio.run(play())
    for episode in ours["ludus/shaped-v0"]:  # no number stands for a tool that does not exist
        episode["steps"] = [step for step in episode["steps"] if step["action"]["tool"] == "guess"]
    report = run_peer("gymnasium", PROGRAM, {"run": "golden", "episodes": ours, **packages})
    for env_id, episodes in ours.items():
        assert len({one["task"] for one in episodes}) > len(episodes) / 2
        for one in episodes:
            for step in one["steps"]:
                step["reward"] = step["reward"] or 0.0  # Gymnasium has no other way to say that nothing was earned
        fields = ("text", "reward", "error", "terminated", "truncated", "end_reason")
        assert differences(episodes, report[env_id], fields) == []
        assert [one["task"] for one in report[env_id]] == [one["task"] for one in episodes]
        assert len({one["value"] for one in episodes}) > 1 or env_id == "ludus/numbers-v0"
    assert {step["truncated"] for one in report["ludus/numbers-v0"] for step in one["steps"][-1:]} == {True}


def test_vector_environments_play_the_same_episodes_and_refuse_to_share_memory(
    packages: dict[str, Any], run_peer: Callable[..., dict[str, Any]]
) -> None:
    ids = ["ludus/numbers-v0", "ludus/sums-v0"]
    report = run_peer("gymnasium", PROGRAM, {**packages, "run": "vectors", "ids": ids})
    assert "shared_memory=False" in report.pop("shared")
    assert report == {f"{one} {mode}": [3, 3] for one in ids for mode in ("sync", "async")}


def test_seeds_options_and_refusals(server: str, run_peer: Callable[..., dict[str, Any]]) -> None:
    report = run_peer("gymnasium", PROGRAM, {"run": "objects", "url": server})
    assert report["info"] == report["again"] == {"task": "sum-1004", "split": "test", "seed": 1}
    assert report["tools"] == ["add", "submit"]
    assert "Discrete(3)" in report["space"]  # two tools, and the answer
    first, second, third = report["refused"]
    assert first.startswith("InvalidParams: reset has no option 'tsk'; it has: split, task, index")
    assert second.startswith("TaskNotFound")
    assert third.startswith("SplitNotFound")
    assert report["outside"].startswith("InvalidParams: the action")
    text, reward, ends, error = report["malformed"]
    assert "not valid JSON" in text
    assert (reward, ends, error) == (0.0, [False, False], "invalid_arguments")
    assert report["ended"].startswith("ResetNeeded")
    assert report["multi"] == ["MultiDiscrete([10 10])", "12"]
    several, unknown, tool, unbounded, chars, render = report["wrong"]
    assert "several environments, name one of them: " in several
    assert "no environment 'sms' here" in unknown
    assert "there is no tool 'sub'; there are: add, submit" in tool
    assert "say add:a=LOW..HIGH" in unbounded
    assert "at least 100" in chars
    assert "nothing to render" in render


def test_an_unscored_episode_raises_and_is_never_worth_0(
    server: str, doomed: tuple[str, int], run_peer: Callable[..., dict[str, Any]]
) -> None:
    given = {"run": "outages", "breaking": server, "doomed": doomed[0], "process": doomed[1]}
    report = run_peer("gymnasium", PROGRAM, given)
    broken = [end for end in report["ends"] if end.startswith("EnvironmentFailed")]
    assert len(broken) == report["counted"] == 2
    assert all("('wrong', 0.0, True, False" in end for end in report["ends"] if end not in broken)
    assert report["killed"].startswith("InfrastructureFailed")
    assert report["gone"].startswith("ConnectionFailed")


def test_an_environment_serves_itself_while_it_is_open(run_peer: Callable[..., dict[str, Any]]) -> None:
    report = run_peer("gymnasium", PROGRAM, {"run": "served", "source": "guess_number", "python": sys.executable})
    assert report["info"]["seed"] == 3
    for url in report["urls"]:
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(url, timeout=5)
    assert report["wrong"].startswith("AuthoringError: nothing_here cannot be served")


@pytest.mark.parametrize("page", ["of the package", "on exports"])
def test_the_program_on_a_page_runs(
    packages: dict[str, Any], page: str, run_peer: Callable[..., dict[str, Any]]
) -> None:
    folder = Path(packages["folders"][0])
    text = (folder / "README.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    if page == "on exports":
        code = (ROOT / "docs" / "snippets" / "gymnasium_episode.py").read_text(encoding="utf-8")
    assert "gymnasium.make" in code
    report = run_peer("gymnasium", "readme_code.py", {"folders": [str(folder)], "code": code, "show": "info"})
    assert report["shown"]["error"] in ("", "refused")
