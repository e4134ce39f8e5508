"""`ludus calibrate` against a real server: coins whose true rates are known."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from coins import RATES, STALL
from terminal import LUDUS, clean_variables, serving

from ludus.client import read_trajectories
from ludus.evaluation.calibration import read_difficulty

Ludus = Callable[..., subprocess.CompletedProcess[str]]


def found(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    assert done.returncode == code, done.stderr
    value = json.loads(done.stdout)
    assert isinstance(value, dict)
    return value


def test_intervals_hold_the_true_rates_and_the_band_its_tasks(ludus: Ludus, url: str, coins: Path) -> None:
    told = found(ludus("calibrate", url, "coins", "--policy", f"{coins}:Flips", "--samples", 16, "--seed", 1, "--json"))
    assert (told["environment"], told["split"], told["policy"], told["seed"]) == ("coins", "train", "flips", 1)
    assert (told["summary"]["episodes"], len(told["tasks"])) == (320, 20)
    held = [low <= RATES[task["index"] % 4] <= high for task in told["tasks"] for low, high in [task["interval"]]]
    assert sum(held) >= 18
    low, high = told["interval"]
    assert low <= 0.4375 <= high
    assert told["never"]["tasks"] == told["always"]["tasks"] == 5
    assert told["band"]["low"] == 0.2
    assert told["band"]["estimate_interval"][0] <= 0.5 <= told["band"]["estimate_interval"][1]
    assert [(one["level"], one["tasks"], one["attempts"]) for one in told["levels"]] == [
        ("easy", 10, 160), ("hard", 10, 160),
    ]  # fmt: skip
    assert told["pass_at"]["16"]["value"] > told["pass_at"]["1"]["value"] == told["pass_rate"]


@pytest.mark.suite("breadth")
def test_it_prints_tables_and_writes_the_difficulty_file(ludus: Ludus, url: str, coins: Path, tmp_path: Path) -> None:
    flips = ("calibrate", url, "coins", "--policy", f"{coins}:Flips", "--seed", 2, "-n", 8, "--samples", 4)
    done = ludus(*flips, "--by", "grace", "--band", "0.25,0.75", "--difficulty", "d.json", "--out", "runs.jsonl")
    assert done.returncode == 0, done.stderr
    for part in ("pass rate (reward ≥ 1)", "pass@4", "25% to 75%", "never solved", "grace", "coin-", "steps: median"):
        assert part in done.stdout
    assert "wrote the difficulty of 8 tasks to d.json" in done.stderr
    file = read_difficulty(tmp_path / "d.json")
    assert (file.environment, file.environment_version, file.seed, file.band) == ("coins", "0.1.0", 2, (0.25, 0.75))
    drawn = sorted(random.Random(2).sample(range(20), 8))
    assert list(file.tasks) == [f"coin-{index}" for index in drawn]
    for name, task in file.tasks.items():
        assert task.attempts == 4
        assert task.level == str(int(name[5:]) % 2)
    assert ludus(*flips, "--difficulty", "d.json").returncode == 0, "an earlier file is replaced"


@pytest.mark.suite("breadth")
def test_stored_trajectories_tell_the_same_without_a_server(
    ludus: Ludus, url: str, coins: Path, tmp_path: Path
) -> None:
    flips = ("--policy", f"{coins}:Flips", "--seed", 3, "--samples", 4, "--json", "--success-at", 1)
    live = found(ludus("calibrate", url, "coins", *flips, "--out", "runs.jsonl"))
    stored = found(ludus("calibrate", "--from", "runs.jsonl", "--json"))
    assert {**stored, "seed": 3} == live
    other = ludus("run", url, "coins", "--out", "others.jsonl", "--seed", 3, "-n", 4, "--json")
    assert other.returncode == 1, "random calls crash the environment"
    both = ("calibrate", "--from", "runs.jsonl", "--from", "others.jsonl", "--json")
    mixed = ludus(*both)
    assert mixed.returncode == 3
    assert "more than one policy ('flips', 'random(seed=3)')" in mixed.stderr
    assert found(ludus(*both, "--policy", "flips"))["tasks"] == stored["tasks"]


@pytest.mark.suite("breadth")
def test_a_killed_calibration_goes_on_where_it_was(ludus: Ludus, url: str, coins: Path, tmp_path: Path) -> None:
    arguments = [
        "calibrate", url, "coins", "--policy", f"{coins}:Flips", "--seed", "4", "--samples", "2", "-c", "1", "--json",
    ]  # fmt: skip
    process = subprocess.Popen(
        [str(LUDUS), *arguments, "--out", "runs.jsonl"],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=clean_variables() | {STALL: "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "stalled\n"
    finally:
        process.kill()
        process.communicate(timeout=20)
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"format": "ludus.traj')  # what a crash tears
    resumed = found(ludus(*arguments, "--out", "runs.jsonl", "--resume"))
    whole = found(ludus(*arguments))
    assert [task["passes"] for task in resumed["tasks"]] == [task["passes"] for task in whole["tasks"]]
    assert resumed["summary"]["scored"] == 40
    assert len(list(read_trajectories(tmp_path / "runs.jsonl"))) == 40


@pytest.mark.suite("breadth")
def test_a_resumed_file_of_another_policy_is_refused_before_anything_is_played(
    ludus: Ludus, url: str, coins: Path, tmp_path: Path
) -> None:
    assert ludus("run", url, "coins", "-n", 4, "--seed", 1, "--out", "runs.jsonl").returncode == 1
    before = (tmp_path / "runs.jsonl").read_bytes()
    done = ludus("calibrate", url, "coins", "--policy", f"{coins}:Flips", "--out", "runs.jsonl", "--resume")
    assert done.returncode == 2
    assert "random(seed=1)" in done.stderr
    assert (tmp_path / "runs.jsonl").read_bytes() == before


@pytest.mark.suite("breadth")
def test_faults_of_the_environment_leave_tasks_unscored(ludus: Ludus, url: str, coins: Path, tmp_path: Path) -> None:
    clumsy = ("calibrate", url, "coins", "--policy", f"{coins}:clumsy", "--samples", 2, "--seed", 5)
    done = ludus(*clumsy, "--difficulty", "d.json", "--json")
    told = found(done, 1)
    broken = [task for task in told["tasks"] if task["index"] % 4 == 1]
    assert all(task["failed"] == {"environment": 2} and task["pass_rate"] is None for task in broken)
    assert told["summary"]["failed"] == {"environment": 10}
    assert told["band"]["tasks"] == 15
    file = read_difficulty(tmp_path / "d.json")
    assert (file.tasks["coin-1"].attempts, file.tasks["coin-1"].unscored) == (0, 2)
    assert "coin-1" not in file.counts()
    partly = found(ludus(*clumsy[:4], f"{coins}:sometimes_clumsy", "--samples", 3, "-n", 4, "--json"), 1)
    assert [(task["attempts"], task["failed"]) for task in partly["tasks"]] == [(2, {"environment": 1})] * 4


def test_where_every_episode_fails_no_file_is_written(ludus: Ludus, url: str, coins: Path, tmp_path: Path) -> None:
    done = ludus("calibrate", url, "broken", "-n", 2, "--samples", 1, "--retries", 0, "--difficulty", "d.json")
    assert done.returncode == 5, done.stderr
    assert "2 × environment failure" in done.stderr
    assert "no pass rate can be measured" in done.stderr
    buggy = ("--policy", f"{coins}:buggy", "--samples", 1, "-n", 2)
    done = ludus("calibrate", url, "coins", *buggy, "--difficulty", "d.json")
    assert done.returncode == 5, done.stderr
    assert "2 × policy failure" in done.stderr
    assert not (tmp_path / "d.json").exists()


def test_what_was_played_is_shown_even_if_nothing_has_the_name_of_by(
    ludus: Ludus, url: str, coins: Path, tmp_path: Path
) -> None:
    flips = ("--policy", f"{coins}:Flips", "-n", 2, "--samples", 1, "--seed", 1)
    done = ludus(
        "calibrate", url, "coins", *flips, "--by", "hue", "--out", "r.jsonl", "--difficulty", "d.json", "--json"
    )
    told = found(done, 3)
    assert "'hue'" in done.stderr
    assert "(difficulty, rate, size)" in done.stderr
    assert "(grace)" in done.stderr
    assert (told["by"], told["summary"]["scored"]) == ("difficulty", 2)
    assert len(read_difficulty(tmp_path / "d.json").tasks) == 2
    stored = ludus("calibrate", "--from", "r.jsonl", "--by", "hue")
    assert (stored.returncode, stored.stdout) == (3, "")


def test_tasks_with_wide_intervals_are_played_on(ludus: Ludus, url: str, coins: Path) -> None:
    told = found(
        ludus(
            "calibrate", url, "coins", "--policy", f"{coins}:Flips", "--seed", 6, "-n", 4, "--samples", 8,
            "--until-width", 0.4, "--max-samples", 20, "--json",
        )
    )  # fmt: skip
    for task in told["tasks"]:
        width = task["interval"][1] - task["interval"][0]
        assert width <= 0.4 or task["attempts"] == 20
        assert task["attempts"] in (8, 16, 20)
    assert len({task["attempts"] for task in told["tasks"]}) > 1


@pytest.mark.suite("breadth")
@pytest.mark.timeout(240)  # seven processes, each of which imports everything
def test_a_reported_or_given_calibration_steers_what_the_server_draws(
    ludus: Ludus, coins: Path, tmp_path: Path
) -> None:
    def drawn(url: str) -> set[float]:
        script = (
            "import sys; from ludus.client import connect; import asyncio\n"
            "async def main():\n"
            "    async with connect(sys.argv[1]) as client:\n"
            "        return await client.environment('coins').sample('train', 6, strategy='band', seed=1)\n"
            "print([row.fields['rate'] for row in asyncio.run(main())])"
        )
        done = subprocess.run(
            [LUDUS.with_name("python"), "-c", script, url], capture_output=True, text=True, timeout=50, check=True
        )
        return set(json.loads(done.stdout))

    with serving(f"{coins}:Coins") as first:
        done = ludus(
            "calibrate", first, "coins", "--policy", f"{coins}:Flips", "--seed", 7, "--samples", 24,
            "--report", "--difficulty", "d.json",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "reported 480 outcomes" in done.stderr
        reported = drawn(first)
    assert reported <= {0.3, 0.45}
    with serving(f"{coins}:Coins", "--difficulty", tmp_path / "d.json") as second:
        assert drawn(second) == reported
    with serving(f"{coins}:Coins") as third:
        assert drawn(third) - {0.3, 0.45}


def test_serve_names_a_difficulty_file_that_it_cannot_use(ludus: Ludus, coins: Path) -> None:
    done = ludus("serve", f"{coins}:Coins", "--port", 0, "--difficulty", "none.json")
    assert done.returncode == 3
    assert "none.json cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "--from"),
        (("URL", "coins", "--band", "0.5,0.2"), 2, "lower one first"),
        (("URL", "coins", "--band", "half"), 2, "two pass rates"),
        (("URL", "coins", "--price-in", "1"), 2, "--price-out"),
        (("URL", "coins", "--price-in", "1", "--price-out", "inf"), 2, "finite number"),
        (("--from", "none.jsonl", "--success-at", "nan"), 2, "--success-at must be a finite number"),
        (("--from", "none.jsonl", "--success-at", "inf"), 2, "--success-at must be a finite number"),
        (("URL", "coins", "--until-width", "0.9", "--samples", "2", "--max-samples", "1"), 2, "less than --samples 2"),
        (("URL", "coins", "--resume"), 2, "--out"),
        (("URL", "coins", "--difficulty", "no/such/d.json"), 2, "folder does not exist"),
        (("URL", "coins", "--difficulty", "."), 2, "is a folder"),
        (("--from", "none.jsonl"), 3, "none.jsonl cannot be read"),
        (("--from", "none.jsonl", "--report"), 2, "--report needs a running server"),
        (("--from", "none.jsonl", "--out", "x"), 2, "cannot be combined with --from"),
        (("URL", "nope"), 3, "coins"),
        (("URL", "coins", "--split", "nope"), 3, "'train', 'endless', 'test'"),
        (("URL", "coins", "--split", "endless"), 3, "endless"),
        (("URL", "coins", "--policy", "magic"), 2, "magic"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_mistakes_are_answered_in_a_line_without_a_traceback(
    ludus: Ludus, url: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = ludus("calibrate", *(url if argument == "URL" else argument for argument in arguments))
    assert done.returncode == code, done.stderr
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_its_help_names_the_options_of_run(ludus: Ludus) -> None:
    run, calibrate = (ludus(command, "--help").stdout for command in ("run", "calibrate"))
    options = {word for word in run.split() if word.startswith("--")}
    assert {"--policy", "--base-url", "--option", "--concurrency"} <= options
    assert options <= set(calibrate.split())
