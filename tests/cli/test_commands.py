"""What each command prints, and what its exit code says."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from terminal import running_episodes

from ludus.client.trajectory_files import read_trajectories

Ludus = Callable[..., CompletedProcess[str]]


def test_the_version_is_the_distributions(ludus: Ludus) -> None:
    from importlib.metadata import version

    assert ludus("--version").stdout == f"ludus {version('ludus-rl')}\n"


def test_help_lists_every_command(ludus: Ludus) -> None:
    done = ludus("--help")
    assert done.returncode == 0
    for command in ("init", "envs", "tasks", "show", "play", "run", "serve", "token"):
        assert f" {command} " in done.stdout
    assert ludus().returncode == 2


def test_a_mistyped_command_gets_a_suggestion(ludus: Ludus) -> None:
    done = ludus("tassk")
    assert done.returncode == 2
    assert "tasks" in done.stderr


def test_envs_lists_names_splits_and_tools(ludus: Ludus, url: str) -> None:
    done = ludus("envs", url)
    assert done.returncode == 0, done.stderr
    assert "sums 0.1.0" in done.stdout
    assert "splits: train 6, test 3" in done.stdout
    assert "tools: note, pick, submit, crash" in done.stdout
    values = json.loads(ludus("envs", url, "--json").stdout)
    assert [value["name"] for value in values] == ["sums", "riddle"]


def test_tasks_lists_a_split_without_private_fields(ludus: Ludus, url: str) -> None:
    done = ludus("tasks", url, "sums", "-n", "2", "--start", "3")
    assert done.returncode == 0, done.stderr
    assert "sum-3" in done.stdout
    assert "sum-5" not in done.stdout
    rows = json.loads(ludus("tasks", url, "sums", "--split", "train", "--json").stdout)
    assert rows[0] == {"id": "sum-0", "split": "train", "index": 0, "fields": {"a": 0, "b": 2}}


def test_show_describes_an_environment_and_a_task(ludus: Ludus, url: str) -> None:
    assert "submit(number: integer)" in ludus("show", url, "sums").stdout
    done = ludus("show", url, "sums", "sum-4")
    assert "4 + 2?" in done.stdout
    assert ludus("show", url, "sums", "4").stdout == done.stdout
    assert json.loads(ludus("show", url, "sums", "4", "--json").stdout)["task"]["fields"] == {"a": 4, "b": 2}


def test_a_person_plays_through_a_pipe(ludus: Ludus, url: str) -> None:
    lines = [
        "help", "tools", "nothing", "note", "hello", "2", "yes", 'note "a b" 3', "note text=x loud=true",
        'note {"text": "json"}', "pick [1, 2, 3]", "submit many", "submit 5",
    ]  # fmt: skip
    done = ludus("play", url, "sums", "--task", "sum-3", "--seed", "1", input="\n".join(lines))
    assert done.returncode == 0, done.stderr
    for shown in (
        "3 + 2?",
        "HELLOHELLO",
        "a ba ba b",
        "\nX\n",
        "\njson\n",
        "sum 6",
        "not of the type integer",
        "right",
    ):
        assert shown in done.stdout
    assert "there is no tool 'nothing'" in done.stdout
    assert "The end (completed)" in done.stdout
    assert "Reward: 1 (right 1)" in done.stdout


def test_leaving_a_game_says_what_was_earned(ludus: Ludus, url: str) -> None:
    assert "You left. Reward until then: 0" in ludus("play", url, "sums", input="quit\n").stdout
    assert "You left. Reward until then: 0" in ludus("play", url, "sums", input="").stdout


def test_a_person_answers_where_answers_are_graded(ludus: Ludus, url: str) -> None:
    done = ludus("play", url, "riddle", input="answer an egg\n")
    assert "The end (submitted)" in done.stdout
    assert "Reward: 1" in done.stdout


def test_play_takes_the_only_environment_and_asks_among_several(ludus: Ludus, url: str, single: str) -> None:
    assert "You left" in ludus("play", single, input="").stdout
    done = ludus("play", url, input="")
    assert done.returncode == 2
    assert "sums, riddle" in done.stderr


@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
def test_an_oracle_runs_on_each_wire(ludus: Ludus, url: str, world: Path, wire: str) -> None:
    done = ludus(
        "run", url, "sums", "--policy", "oracle", "--source", f"{world}:Sums", "--wire", wire, "--seed", "3", "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["episodes"], summary["mean"], summary["success"]) == (6, 1.0, 1.0)
    assert summary["end_reasons"] == {"completed": 6}


def test_run_prints_a_table_and_writes_trajectories_that_it_can_resume(
    ludus: Ludus, url: str, world: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    oracle = ("run", url, "sums", "--policy", "oracle", "--source", f"{world}:Sums", "--out", out)
    done = ludus(*oracle, "-n", "4")
    assert done.returncode == 0, done.stderr
    assert "mean reward" in done.stdout
    assert "95 %" in done.stdout
    assert len(list(read_trajectories(out))) == 4
    assert ludus(*oracle).returncode == 2
    again = ludus(*oracle, "--resume", "--json")
    assert json.loads(again.stdout)["episodes"] == 6
    assert len(list(read_trajectories(out))) == 6


def test_failed_episodes_stay_out_of_the_mean_and_show_in_the_exit_code(ludus: Ludus, url: str, world: Path) -> None:
    done = ludus("run", url, "sums", "--policy", f"{world}:crasher", "-n", "2", "--json")
    summary = json.loads(done.stdout)
    assert (summary["mean"], summary["scored"], summary["failed"]) == (1.0, 1, {"environment": 1})
    assert done.returncode == 1
    done = ludus("run", url, "sums", "--policy", "world:buggy", "-n", "2", cwd=world.parent)
    assert done.returncode == 5
    assert "2 × policy failure: ValueError: my bug" in done.stderr


def test_the_same_seed_gives_the_same_run(ludus: Ludus, url: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        done = ludus("run", url, "sums", "--seed", "5", "--max-turns", "3", "--out", f"{name}.jsonl")
        assert done.returncode in (0, 1), done.stderr
    first, second = (
        {t.task.id: (t.seed, t.items) for t in read_trajectories(tmp_path / f"{name}.jsonl")} for name in ("a", "b")
    )
    assert first == second


@pytest.mark.suite("breadth", first=5)
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("envs", "http://127.0.0.1:9"), 4, "127.0.0.1:9"),
        (("envs", "nonsense"), 3, "no environment is published as 'nonsense'"),
        (("envs", "URL", "--wire", "smoke"), 2, "smoke"),
        (("tasks", "URL", "nope"), 3, "sums, riddle"),
        (("tasks", "URL", "sums", "--split", "nope"), 3, "nope"),
        (("show", "URL", "sums", "sum-99"), 3, "sum-99"),
        (("run", "URL", "sums", "--policy", "magic"), 2, "magic"),
        (("run", "URL", "sums", "--policy", "no.such:thing"), 3, "no.such"),
        (("run", "URL", "sums", "--policy", "openai"), 2, "--model"),
        (("run", "URL", "riddle", "--policy", "oracle"), 3, "riddle"),
        (("run", "URL", "sums", "--resume"), 2, "--out"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_mistakes_are_answered_in_a_line_without_a_traceback(
    ludus: Ludus, url: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = ludus(*(url if argument == "URL" else argument for argument in arguments))
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_what_a_server_says_cannot_steer_the_terminal(ludus: Ludus, url: str) -> None:
    assert "3 + 2?\ufffd[31m[bold]" in ludus("show", url, "sums", "3").stdout
    assert "3 + 2?\ufffd[31m[bold]" in ludus("play", url, "sums", "--task", "3").stdout


def test_an_interrupted_run_closes_its_episodes_and_keeps_what_it_wrote(url: str, world: Path, tmp_path: Path) -> None:
    ludus = Path(sys.executable).with_name("ludus")
    command = [str(ludus), "run", url, "sums", "--policy", f"{world}:waiting", "-c", "2", "--out", str(tmp_path / "o")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["waiting\n"] * 2
        assert running_episodes(url) == 2
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert running_episodes(url) == 0


def test_a_persons_play_is_recorded_as_trajectories(ludus: Ludus, url: str, tmp_path: Path) -> None:
    record = ("--record", tmp_path / "mine.jsonl")
    lines = "note hello\nsubmit many\nsubmit 5\n"
    done = ludus("play", url, "sums", "--task", "sum-3", "--seed", "1", *record, input=lines)
    assert done.returncode == 0, done.stderr
    assert "as sample 0 of the task" in done.stdout
    assert "Nothing is recorded" in ludus("play", url, "sums", *record, input="note x\n").stdout
    again = ludus("play", url, "sums", "--task", "sum-3", *record, "--as", "ada", input="submit 9\n")
    assert "as sample 1 of the task" in again.stdout
    riddle = ludus("play", url, "riddle", *record, input="answer an egg\n")
    assert riddle.returncode == 0, riddle.stderr
    first, second, third = read_trajectories(tmp_path / "mine.jsonl")
    assert (first.policy, first.value, first.seed, first.end_reason) == ("human", 1.0, 1, "completed")
    assert [item["type"] for item in first.items] == ["message", *["function_call", "function_call_output"] * 2]
    assert [turn.policy_seconds >= 0 for turn in first.turns] == [True, True]
    assert first.environment_version
    assert (second.policy, second.value, second.sample) == ("ada", 0.0, 1)
    assert (third.environment, third.value, third.grade and third.grade.value) == ("riddle", 1.0, 1.0)
    (tmp_path / "other.txt").write_text("hello\n")
    wrong = ludus("play", url, "sums", "--record", tmp_path / "other.txt", input="submit 9\n")
    assert wrong.returncode == 2
    assert "appends to a file of trajectories" in " ".join(wrong.stderr.replace("│", " ").split())
    assert (tmp_path / "other.txt").read_text() == "hello\n"


def test_a_play_whose_environment_breaks_is_not_recorded(ludus: Ludus, url: str, tmp_path: Path) -> None:
    done = ludus("play", url, "sums", "--record", tmp_path / "mine.jsonl", input="crash\n")
    assert done.returncode == 5
    assert not list(read_trajectories(tmp_path / "mine.jsonl"))
