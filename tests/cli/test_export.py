"""`ludus export` writes what a policy sees of each task, and where to play it; nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from terminal import run_ludus_here
from threaded import server_in_thread
from worlds import SECRET_ANSWER, Playground

from ludus.client import TaskAddress


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
