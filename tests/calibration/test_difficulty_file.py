"""The difficulty file: written whole or not at all, read strictly, and used by splits and curricula."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from coins import Coin, Coins, coin

from ludus.client import connect
from ludus.evaluation.calibration import calibrate, difficulty_of, read_difficulty, write_difficulty
from ludus.protocol.difficulty import DifficultyFile
from ludus.protocol.episodes import Outcome
from ludus.protocol.errors import AuthoringError, NotFound, ParseError
from ludus.protocol.trajectory import Trajectory
from ludus.server import Split
from ludus.server.tasks.catalog import Catalog

Played = Callable[..., Trajectory]
WHEN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def rate_of(index: int) -> int:
    """Passes of eight: 0, 2, 4, 8 in turn."""
    return (0, 2, 4, 8)[index % 4]


@pytest.fixture
def file(played: Played) -> DifficultyFile:
    rows = [
        played(index, sample, float(sample < rate_of(index)), environment="coins", environment_version="0.1.0")
        for index in range(20)
        for sample in range(8)
    ]
    rows = [
        row.model_copy(update={"task": row.task.model_copy(update={"id": f"coin-{row.task.index}"})}) for row in rows
    ]
    return difficulty_of(calibrate(rows, seed=7), WHEN)


@pytest.fixture
def path(file: DifficultyFile, tmp_path: Path) -> Path:
    write_difficulty(tmp_path / "difficulty.json", file)
    return tmp_path / "difficulty.json"


def changed(path: Path, **fields: Any) -> Path:
    """A file next to it with other fields."""
    data = json.loads(path.read_text()) | fields
    other = path.with_name("other.json")
    other.write_text(json.dumps(data))
    return other


# ── the file ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_is_read_as_it_was_written(file: DifficultyFile, path: Path) -> None:
    assert read_difficulty(path) == file
    data = json.loads(path.read_text())
    assert data["format"] == "ludus.difficulty/0.1"
    assert (data["environment"], data["split"], data["policy"], data["seed"]) == ("coins", "train", "p", 7)
    assert data["measured_at"] == "2026-11-21T12:00:00Z"
    first = data["tasks"]["coin-1"]
    assert (first["passes"], first["attempts"], first["pass_rate"], first["mean_reward"]) == (2, 8, 0.25, 0.25)
    assert first["interval"] == pytest.approx([0.0715, 0.5907], abs=1e-4)
    assert path.stat().st_mode & 0o777 == 0o644


def test_it_says_what_noise_it_was_measured_with(played: Played, tmp_path: Path) -> None:
    noisy = played(1, steps=3)
    noisy = noisy.model_copy(
        update={
            "steps": tuple(one.model_copy(update={"noise": "delay"} if one.step > 1 else {}) for one in noisy.steps)
        }
    )
    file = difficulty_of(calibrate([played(0), noisy]), WHEN)
    write_difficulty(tmp_path / "d.json", file)
    assert read_difficulty(tmp_path / "d.json").noise == {"delay": 2}


def test_a_task_that_was_never_scored_has_no_rate(played: Played, tmp_path: Path) -> None:
    file = difficulty_of(calibrate([played(0), played(1, failure="environment"), played(1, 1, None)]), WHEN)
    assert (file.tasks["t-1"].attempts, file.tasks["t-1"].unscored, file.tasks["t-1"].pass_rate) == (0, 2, None)
    assert file.within(0, 1) == ["t-0"]
    assert file.counts() == {"t-0": (1, 1)}
    write_difficulty(tmp_path / "d.json", file)
    assert read_difficulty(tmp_path / "d.json") == file
    with pytest.raises(ValueError, match="no episode was scored"):
        difficulty_of(calibrate([played(0, failure="policy")]))


def test_what_cannot_be_written_leaves_the_earlier_file_and_no_rest(file: DifficultyFile, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_difficulty(tmp_path / "folder", file)
    with pytest.raises(FileNotFoundError):
        write_difficulty(tmp_path / "nowhere" / "d.json", file)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder"]


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "ludus.difficulty/9"}, "format: Input should be 'ludus.difficulty/0.1'"),
        ({"comment": "hi"}, "comment: Extra inputs are not permitted"),
        ({"band": [0.5, 0.2]}, "band: .*lower one first"),
        ({"measured_at": "2026-11-21T12:00:00"}, "measured_at: .*timezone"),
        ({"tasks": {"a": {"passes": 1}}}, "tasks.a.attempts: Field required"),
        ({"success_at": "1"}, "success_at: .*number"),
    ],
    ids=lambda value: str(*value) if isinstance(value, dict) else "",
)
def test_what_is_no_difficulty_file_is_refused_by_name_and_field(
    path: Path, change: dict[str, Any], message: str
) -> None:
    other = changed(path, **change)
    with pytest.raises(ParseError, match=rf"other\.json is no difficulty file: {message}"):
        read_difficulty(other)
    with pytest.raises(AuthoringError, match=message):
        Split([coin(0)]).within(other)


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"passes": 9}, "9 passes in 8 attempts"),
        ({"passes": 4}, "pass_rate 0.25 is not 4 / 8"),
        ({"pass_rate": None}, "pass_rate None is not 2 / 8"),
        ({"interval": [0.1, 1.5]}, "interval.1: .*less than or equal to 1"),
        ({"speed": 1}, "speed: Extra inputs"),
    ],
    ids=str,
)
def test_figures_that_contradict_each_other_are_refused(path: Path, task: dict[str, Any], message: str) -> None:
    tasks = json.loads(path.read_text())["tasks"]
    tasks["coin-1"] |= task
    with pytest.raises(ParseError, match=message):
        read_difficulty(changed(path, tasks=tasks))


def test_a_file_that_is_not_there_or_not_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="none.json cannot be read: No such file"):
        read_difficulty(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("{half")
    with pytest.raises(ParseError, match="text.json is no difficulty file: Invalid JSON"):
        read_difficulty(tmp_path / "text.json")
    with pytest.raises(AuthoringError, match=r"here.json cannot be read \(seen from .*\): No such file"):
        Split([coin(0)]).within("here.json")


# ── splits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def coins_with(**splits: Split[Coin]) -> type[Coins]:
    return type("Coins", (Coins,), {"splits": splits})


def ids(split: Split[Coin]) -> list[str]:
    split.prepare()
    return [split.get(index).id for index in range(split.count or 0)]


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize(
    "base",
    [
        lambda: Split([coin(index) for index in range(20)]),
        lambda: Split.lazy(coin, 20),
        lambda: Split.load(lambda: [coin(index) for index in range(20)]),
        lambda: Split.generated(coin),
    ],
    ids=["tasks", "lazy", "load", "generated"],
)
def test_a_split_is_narrowed_to_tasks_within_the_band_in_its_own_order(path: Path, base: Any) -> None:
    narrow = base().within(path)
    catalog = Catalog([coins_with(train=narrow)])
    assert catalog["coins"].splits["train"].count == 10
    assert ids(narrow) == [f"coin-{index}" for index in range(20) if index % 4 in (1, 2)]
    assert narrow.find("coin-5")[0] == 2
    with pytest.raises(KeyError):
        narrow.find("coin-4")
    assert ids(base().within(path, band=(1, 1))) == [f"coin-{index}" for index in range(3, 20, 4)]


def test_a_filtered_split_under_another_name_exists_next_to_the_whole_one(path: Path) -> None:
    whole = Split([coin(index) for index in range(20)])
    catalog = Catalog([coins_with(train=whole, hard=whole.within(path, (0, 0.3), type="train"))])
    infos = {info.name: (info.type, info.count) for info in catalog["coins"].split_infos()}
    assert infos == {"train": ("train", 20), "hard": ("train", 10)}


def test_a_narrowed_split_can_be_narrowed_again(path: Path) -> None:
    narrow = Split([coin(index) for index in range(20)]).within(path, (0, 0.5))
    again = narrow.within(changed(path, tasks=without(path, "coin-3", step=4)), (0.5, 1))
    assert Catalog([coins_with(train=again)])["coins"].splits["train"].count == 5
    assert ids(again) == [f"coin-{index}" for index in range(2, 20, 4)]


def without(path: Path, first: str, step: int) -> dict[str, Any]:
    tasks = json.loads(path.read_text())["tasks"]
    start = int(first.removeprefix("coin-"))
    return {name: task for name, task in tasks.items() if (int(name.removeprefix("coin-")) - start) % step}


def test_variants_share_the_splits_of_the_environment_that_was_measured(path: Path) -> None:
    narrow = Split.lazy(coin, 20).within(path)
    cls = type("Coins", (Coins,), {"splits": {"train": narrow}, "variants": {"noisy": {"blocking": True}}})
    assert list(Catalog([cls])) == ["coins", "coins-noisy"]


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"environment": "dice"}, "measured on the environment 'dice', and this is 'coins'; measure again"),
        ({"environment_version": "0.0.9"}, "version '0.0.9' of 'coins', and this is version '0.1.0'.*measure again"),
        ({"split": "test"}, "measured on another split, 'test'"),
    ],
    ids=["environment", "version", "split"],
)
def test_a_file_of_something_else_is_refused_at_startup(path: Path, change: dict[str, Any], message: str) -> None:
    other = changed(path, **change)
    narrow, test = Split.lazy(coin, 20).within(other), Split.lazy(coin, 8)
    with pytest.raises(AuthoringError, match=f"split 'train' of 'coins' is filtered by .*other.json: .*{message}"):
        Catalog([coins_with(train=narrow, test=test)])


def test_a_file_of_tasks_that_are_not_there_is_refused_at_startup(path: Path) -> None:
    with pytest.raises(AuthoringError, match=r"has 12 tasks that the split does not have, such as 'coin-8'"):
        Catalog([coins_with(train=Split.lazy(coin, 8).within(path))])


def test_a_band_that_is_none_or_empty_is_refused_with_the_way_out(path: Path) -> None:
    split = Split.lazy(coin, 20)
    with pytest.raises(AuthoringError, match="lower one first"):
        split.within(path, (0.5, 0.2))
    with pytest.raises(AuthoringError, match="no task with a pass rate from 0.9 to 0.95 among 20"):
        split.within(path, (0.9, 0.95))


# ── a server's curriculum ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_server_draws_from_the_band_from_the_beginning(serve: Any, path: Path) -> None:
    server = await serve(Coins, difficulty=(path,))
    async with connect(server.url) as client:
        environment = client.environment("coins")
        drawn = [row for seed in range(4) for row in await environment.sample("train", 5, strategy="band", seed=seed)]
        assert {rate_of(row.index) for row in drawn} == {2, 4}
        easy = await environment.sample("train", 5, strategy="band", band=(1, 1))
        assert {rate_of(row.index) for row in easy} == {8}
        assert await environment.report_outcomes("train", ()) == 0
        won = [Outcome(task=f"coin-{index}", reward=1, passed=True) for index in range(0, 20, 4) for _ in range(8)]
        assert await environment.report_outcomes("train", won) == 40
        now = await environment.sample("train", 10, strategy="band", band=(0.5, 0.5))
        assert {rate_of(row.index) for row in now} == {0, 4}


async def test_a_server_without_the_file_knows_nothing_of_the_band(serve: Any, path: Path) -> None:
    server = await serve(Coins)
    async with connect(server.url) as client:
        drawn = await client.environment("coins").sample("train", 20, strategy="band", seed=1)
        assert {rate_of(row.index) for row in drawn} == {0, 2, 4, 8}


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"environment": "dice"}, "measured on 'dice', which is not served here: there is 'coins'"),
        ({"environment_version": "2"}, "version '2' of 'coins'"),
        ({"split": "exam"}, "the split 'exam', and 'coins' has 'train', 'endless', 'test'"),
        ({"split": "test"}, "has 12 tasks that the split does not have, such as 'coin-8'"),
    ],
    ids=["environment", "version", "split", "tasks"],
)
async def test_a_server_does_not_start_with_a_file_of_something_else(
    serve: Any, path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(AuthoringError, match=message):
        await serve(Coins, difficulty=(changed(path, **change),))


async def test_two_files_of_one_split_are_refused(serve: Any, path: Path) -> None:
    with pytest.raises(AuthoringError, match="are both of split 'train' of 'coins'"):
        await serve(Coins, difficulty=(path, changed(path)))
