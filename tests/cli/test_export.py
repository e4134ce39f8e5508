"""`ludus export` writes what a policy sees of each task, and where to play it; nothing else."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from terminal import run_ludus_here
from threaded import server_in_thread
from worlds import SECRET_ANSWER, Playground

from ludus.cli.dataset_files import table_of
from ludus.client import Call, CallItem, OutputItem, Reward, TaskAddress, Trajectory, TrajectoryWriter
from ludus.client.dataset_rows import TaskForm
from ludus.protocol.content import TextBlock
from ludus.protocol.items import Item, text_message, to_json


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_in_thread(Playground) as server:
        yield server.url


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def play(row: dict[str, Any]) -> float | None:
    index = int(row["ludus"]["task"].removeprefix("r-"))
    async with TaskAddress.from_json(row["ludus"]).drive() as driver:
        assert driver.messages == row["prompt"]
        assert driver.tools == row["tools"]
        await driver.act(f"{SECRET_ANSWER}-{index}")
        return (await driver.finish()).value


def test_each_row_has_prompt_tools_and_an_address_that_plays_the_task(url: str, tmp_path: Path) -> None:
    out = tmp_path / "tasks.jsonl"
    done = run_ludus_here("export", url, "--out", out, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "12 tasks of split train" in done.stdout
    rows = rows_of(out)
    assert [row["ludus"]["task"] for row in rows] == [f"r-{index}" for index in range(12)]
    assert [row["prompt"][0]["content"] for row in rows][:2] == ["Say word 0.", "Say word 1."]
    assert SECRET_ANSWER not in out.read_text()
    assert asyncio.run(play(rows[3])) == 1.0


def test_rows_of_nemo_gym_are_requests_of_the_responses_api(url: str, tmp_path: Path) -> None:
    out = tmp_path / "tasks.jsonl"
    options = ("--form", "nemo-gym", "--split", "endless", "-n", "2", "--seed", "7")
    done = run_ludus_here("export", url, "--out", out, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, _ = rows_of(out)
    params = first["responses_create_params"]
    assert params["input"][0]["role"] == "user"
    assert {tool["type"] for tool in params["tools"]} == {"function"}
    assert first["ludus"]["seed"] == 7


def test_a_local_environment_needs_the_address_that_rows_will_name(tmp_path: Path) -> None:
    out = tmp_path / "tasks.jsonl"
    refused = run_ludus_here("export", "guess_number", "--out", out, "-n", 2, cwd=tmp_path)
    assert refused.returncode == 2
    assert "--address URL" in " ".join(refused.stderr.replace("│", " ").split())
    address = "http://10.0.0.5:8000"
    done = run_ludus_here("export", "guess_number", "--out", out, "-n", 2, "--address", address, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {row["ludus"]["url"] for row in rows_of(out)} == {address}
    again = run_ludus_here("export", "guess_number", "--out", out, "--address", address, cwd=tmp_path)
    assert "say --overwrite" in " ".join(again.stderr.replace("│", " ").split())


def test_an_address_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    done = run_ludus_here("export", url, "--address", "10.0.0.5:8000", "--out", tmp_path / "x.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert not list(tmp_path.iterdir())


def test_an_endless_split_without_a_number_is_refused(url: str, tmp_path: Path) -> None:
    done = run_ludus_here("export", url, "--out", tmp_path / "x.jsonl", "--split", "endless", cwd=tmp_path)
    assert done.returncode != 0
    assert "endless" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_named(url: str, tmp_path: Path) -> None:
    done = run_ludus_here("export", url, "--out", tmp_path / "nowhere" / "x.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot write" in done.stderr


def test_rows_of_verl_choose_the_loop_and_hold_no_answer(url: str, tmp_path: Path) -> None:
    out = tmp_path / "train.jsonl"
    done = run_ludus_here("export", url, "--form", "verl", "--out", out, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    row = rows_of(out)[3]
    assert row["agent_name"] == "ludus"
    assert row["reward_model"] == {"style": "rule", "ground_truth": ""}
    assert row["extra_info"] == {"index": 3, "split": "train", "task": "r-3"}
    assert row["prompt"][0]["content"] == "Say word 3."
    assert SECRET_ANSWER not in out.read_text()


def test_parquet_without_pyarrow_names_the_command_that_installs_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run_ludus_here("export", url, "--out", tmp_path / "x.parquet", cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install pyarrow" in " ".join(done.stderr.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", get_args(TaskForm))
def test_parquet_has_the_rows_of_json_lines_and_the_same_types_in_every_file(
    url: str, tmp_path: Path, form: TaskForm
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    tables = {}
    for name, options in (("seeds.parquet", ("--seed", 7)), ("none.parquet", ()), ("none.jsonl", ())):
        done = run_ludus_here("export", url, "--form", form, "--out", tmp_path / name, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        if name.endswith("parquet"):
            tables[name] = parquet.read_table(tmp_path / name)
    assert tables["seeds.parquet"].schema == tables["none.parquet"].schema
    rows = tables["none.parquet"].to_pylist()
    for row in rows:
        row.update({name: json.loads(row[name]) for name in ("tools", "responses_create_params") if name in row})
    assert rows == rows_of(tmp_path / "none.jsonl")


def test_values_that_one_column_cannot_hold_are_refused_with_what_to_do() -> None:
    arrow = pytest.importorskip("pyarrow")
    rows: list[dict[str, Any]] = [{"prompt": [{"content": "text"}]}, {"prompt": [{"content": [{"type": "image_url"}]}]}]
    with pytest.raises(typer.BadParameter, match="the column prompt has values of several types.*say --to jsonl"):
        table_of(arrow, rows)


def played(path: Path, values: dict[str, list[float | None]]) -> None:
    """Write trajectories of tasks that called a tool and said their value; None is an unscored episode."""
    with TrajectoryWriter(path) as writer:
        for task, found in values.items():
            for sample, value in enumerate(found):
                items: list[Item] = [
                    text_message("user", f"Do {task}."),
                    CallItem("call_1", Call("look", {"at": sample})),
                    OutputItem("call_1", (TextBlock(text="seen"),)),
                    text_message("assistant", f"{value}"),
                ]
                fields = {
                    "environment": "toys",
                    "split": "train",
                    "task": {"id": task, "split": "train", "index": 0, "fields": {}},
                    "sample": sample,
                    "policy": "p",
                    "reward": None if value is None else Reward(value=value),
                    "items": to_json(items),
                    "tools": [{"name": "look", "description": "Look.", "parameters": {"type": "object"}}],
                    "started_at": 0.0,
                    "seconds": 0.0,
                }
                writer.write(Trajectory.model_validate(fields))


VALUES: dict[str, list[float | None]] = {"a": [0.0, 1.0, None, 0.5, 0.5], "b": [1.0, 1.0], "c": [None, 1.0]}


def test_pairs_are_of_one_task_with_unequal_values_and_without_unscored_episodes(tmp_path: Path) -> None:
    played(tmp_path / "games.jsonl", VALUES)
    done = run_ludus_here("export", "games.jsonl", "--form", "pairs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (pair,) = rows_of(tmp_path / "pairs.jsonl")
    assert (pair["task"], pair["chosen_value"], pair["rejected_value"]) == ("a", 1.0, 0.0)
    assert pair["prompt"] == [{"role": "user", "content": "Do a."}]
    assert [message["role"] for message in pair["chosen"]] == ["assistant", "tool", "assistant"]
    assert pair["chosen"][0]["tool_calls"][0]["function"]["name"] == "look"
    assert (pair["chosen"][-1]["content"], pair["rejected"][-1]["content"]) == ("1.0", "0.0")
    assert pair["tools"][0]["function"]["name"] == "look"


def test_groups_have_all_scored_episodes_of_a_task(tmp_path: Path) -> None:
    played(tmp_path / "games.jsonl", VALUES)
    done = run_ludus_here("export", "games.jsonl", "--form", "groups", "--out", "groups.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "groups.jsonl")
    assert [(row["task"], row["rewards"]) for row in rows] == [("a", [0.0, 1.0, 0.5, 0.5]), ("b", [1.0, 1.0])]
    assert [len(row["completions"]) for row in rows] == [4, 2]


def test_pairs_need_a_file_of_trajectories(tmp_path: Path) -> None:
    done = run_ludus_here("export", "http://127.0.0.1:8000", "--form", "pairs", cwd=tmp_path)
    assert done.returncode == 2
    assert "needs a file of trajectories" in " ".join(done.stderr.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_options_that_do_not_fit_a_file_of_trajectories_are_refused(tmp_path: Path) -> None:
    done = run_ludus_here("export", "games.jsonl", "--form", "pairs", "-n", "3", "--split", "train", cwd=tmp_path)
    assert done.returncode == 2
    assert "leave out --split, -n" in " ".join(done.stderr.replace("│", " ").split())
    done = run_ludus_here("export", "games.jsonl", "--form", "verl", cwd=tmp_path)
    assert done.returncode == 2
    assert "needs --form pairs or groups" in " ".join(done.stderr.replace("│", " ").split())


def test_a_file_without_a_pair_says_why(tmp_path: Path) -> None:
    (tmp_path / "games.jsonl").write_text("")
    done = run_ludus_here("export", "games.jsonl", "--form", "pairs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "0 pairs; no task has two scored episodes of unequal value" in done.stdout
