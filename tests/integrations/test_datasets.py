"""Datasets that `ludus export` writes are read by the loaders of those who train on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from terminal import run_ludus_here

from ludus.client import CallItem, Conversation, TrajectoryWriter, Turn, connect, rollout_all
from ludus.client.dataset_rows import TaskForm
from ludus.protocol.actions import Call

pytestmark = pytest.mark.suite("integrations")


async def play(url: str, environment: str, path: Path) -> None:
    """Play two tasks four times each: every second episode submits the right sum."""
    started = 0

    async def policy(conversation: Conversation) -> Turn:
        nonlocal started
        started += 1
        row = conversation.task.fields
        number = row["a"] + row["b"] + started % 2
        return Turn((CallItem(f"call_{started}", Call("submit", {"number": number})),))

    async with connect(url) as client:
        played = await rollout_all(client.environment(environment), policy, n=2, samples=4, concurrency=1)
    with TrajectoryWriter(path) as writer:
        for trajectory in played:
            writer.write(trajectory)


def test_parquet_of_every_form_is_read_and_joined_by_hugging_face_datasets(
    server: str, tmp_path: Path, run_peer: Callable[..., dict[str, Any]]
) -> None:
    asyncio.run(play(server, "every_third_breaks", tmp_path / "games.jsonl"))
    files: dict[str, list[str]] = {}
    for form in get_args(TaskForm):
        for number, environment in enumerate(("sums", "every_third_breaks")):
            out = tmp_path / f"{form}-{number}.parquet"
            seed = ("--seed", 3) if number else ()
            options = ("--form", form, "-n", 4, "--out", out, *seed)
            done = run_ludus_here("export", server, environment, *options, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            files.setdefault(form, []).append(str(out))
    for form in ("pairs", "groups"):
        out = tmp_path / f"{form}.parquet"
        done = run_ludus_here("export", "games.jsonl", "--form", form, "--out", out, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        files[form] = [str(out), str(out)]
    report = run_peer("learners", "datasets_parquet.py", {"files": files})
    assert set(report) == set(files)
    for form in get_args(TaskForm):
        assert report[form]["seeds"] == [None] * 4 + [3] * 4
    for form in ("pairs", "groups"):
        assert report[form]["rows"] > 0


@pytest.mark.timeout(120)  # TRL is imported once, which alone takes 11 s of CPU
def test_trl_reads_exported_pairs_and_trains_on_demonstrations_and_pairs(
    server: str, tmp_path: Path, run_peer: Callable[..., dict[str, Any]]
) -> None:
    asyncio.run(play(server, "every_third_breaks", tmp_path / "broken.jsonl"))
    exported = tmp_path / "exported.jsonl"
    done = run_ludus_here("export", "broken.jsonl", "--form", "pairs", "--out", exported, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    asyncio.run(play(server, "sums", tmp_path / "games.jsonl"))
    given = {"exported": str(exported)}
    for form in ("sft", "pairs"):
        for kind in ("jsonl", "parquet"):
            out = tmp_path / f"{form}.{kind}"
            done = run_ludus_here("demos", "--from", "games.jsonl", "--form", form, "--out", out, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            given[f"{form} {kind}"] = str(out)
    report = run_peer("trl", "trl_demonstrations.py", given)
    pairs = report.pop("exported")
    assert pairs["conversational"]
    assert all(pairs["conversational"])
    for text in pairs["texts"]:
        assert "TOOL submit" in text["prompt"]
        assert "What is" in text["prompt"]
        assert "CALL submit" in text["chosen"]
        assert "right" in text["chosen"]
        assert "wrong" in text["rejected"]
    assert len(report) == 4
    for name, one in report.items():
        assert one["changed"], f"nothing was learned from {name}"
        whole = " ".join(one["texts"].values())
        assert "submit" in whole
        assert "What is" in whole
