"""Environments whose tasks are drawn: splits, variants, held-out tasks without duplicates, and unseen tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.protocol.errors import AuthoringError
from ludus.server import EpisodeHost, Private, ProceduralEnvironment, Split, Task, TaskDraw, fresh_tests, split_of
from ludus.server.authoring.partition import SPLITS
from ludus.server.authoring.procedural import SECRET_VARIABLE
from ludus.server.tasks.catalog import Catalog
from ludus.server.tasks.loading import load_environment

SECRET = "a secret of twenty characters"
Sums: Any = load_environment(f"{Path(__file__).parents[2]}/docs/snippets/sums.py:Sums")


@pytest.fixture(autouse=True)
def _no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)


class Number(Task):
    value: Private[int]


class Numbers(ProceduralEnvironment[Number]):
    """Guess a number below ten."""

    counts = {"test": 5}

    @classmethod
    def make_task(cls, draw: TaskDraw[Any]) -> Number:
        return Number(id=draw.id, value=draw.rng.randrange(10))

    def prompt(self) -> str:
        return "Guess."

    def grade(self, answer: str) -> float:
        return float(answer == str(self.task.value))


def test_a_class_with_a_function_for_tasks_has_splits_and_a_variant_for_each_difficulty() -> None:
    catalog = Catalog([Sums])
    assert sorted(catalog) == ["sums", "sums-easy", "sums-hard", "sums-medium"]
    for name in catalog:
        splits = catalog[name].splits
        assert {split: one.count for split, one in splits.items()} == {"train": None, "validation": 100, "test": 100}
        levels = {splits["train"].get(index).difficulty for index in range(6)}
        assert levels == ({name.partition("-")[2]} if "-" in name else {"easy", "medium", "hard"})


def test_tasks_are_in_their_splits_with_ids_that_count_up_and_always_the_same() -> None:
    for split in SPLITS:
        tasks = [Sums.load_task(split, index) for index in range(60)]
        assert [task.id for task in tasks] == [f"{split}-{index}" for index in range(60)]
        assert {split_of(f"{task.numbers}") for task in tasks} == {split}
        assert tasks == [Sums.load_task(split, index) for index in range(60)]
        assert Sums.splits[split].find(tasks[41].id) == (41, tasks[41])


def test_a_held_out_split_has_no_problem_twice() -> None:
    for split in ("validation", "test"):
        for levels in ((), ("easy",)):
            assert len({str(task.numbers) for task in Sums.load_tasks(split, levels)}) == 100


def test_a_secret_gives_other_tests_with_other_ids_and_changes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    public = {split: [Sums.load_task(split, index) for index in range(100)] for split in SPLITS}
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    fresh = Sums.load_tasks("test")
    assert {task.id for task in fresh}.isdisjoint(task.id for task in public["test"])
    assert {str(task.numbers) for task in fresh}.isdisjoint(str(task.numbers) for task in public["test"])
    assert {split_of(f"{task.numbers}") for task in fresh} == {"test"}
    assert not any(SECRET in task.model_dump_json() for task in fresh)
    for split in ("train", "validation"):
        assert [Sums.load_task(split, index) for index in range(100)] == public[split]
    monkeypatch.setenv(SECRET_VARIABLE, "another")
    assert {task.id for task in Sums.load_tasks("test")}.isdisjoint(task.id for task in fresh)


def test_only_the_test_split_is_ever_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fresh_tests("test") is None
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    assert [split for split in SPLITS if fresh_tests(split)] == ["test"]
    draws = [TaskDraw(split, ("easy",), fresh_tests(split)) for split in SPLITS]
    assert [SECRET in draw.series for draw in draws] == [False, False, True]
    assert not any(SECRET in f"{draw.id} {draw!r}" for draw in draws)


def test_the_generator_of_a_draw_depends_on_split_secret_difficulty_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = [TaskDraw("test", ("easy", "hard"), None, index, place) for index in (0, 1) for place in (0, 1)]
    draws.append(TaskDraw("train", ("easy", "hard")))
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    draws.append(TaskDraw("test", ("easy", "hard"), fresh_tests("test")))
    assert len({draw.rng.random() for draw in draws}) == len(draws)
    assert draws[0].rng.random() != draws[0].rng.random(), "a draw has one generator"


def test_too_few_different_problems_are_an_error_with_their_number() -> None:
    class Twelve(Numbers):
        counts = {"validation": 12}

        @classmethod
        def task_identity(cls, task: Number, draw: TaskDraw[Any]) -> str:
            return f"{task.value}"

    with pytest.raises(
        AuthoringError, match=r"Twelve: the split validation cannot have 12 tasks: after 10, .* `counts`"
    ):
        Twelve.load_task("validation", 0)


def test_without_an_identity_tasks_are_made_one_by_one() -> None:
    made: list[str] = []

    class Watched(Numbers):
        @classmethod
        def make_task(cls, draw: TaskDraw[Any]) -> Number:
            made.append(draw.id)
            return super().make_task(draw)

    assert Watched.splits["test"].get(3) == Numbers.load_task("test", 3)  # type: ignore[union-attr]
    assert made == ["test-3"]


def test_training_ends_only_if_it_is_listed_and_other_splits_exist_only_then() -> None:
    assert list(Numbers.splits) == ["train", "test"]
    with pytest.raises(ValueError, match="has no end"):
        Numbers.load_tasks("train")

    class Few(Numbers):
        counts = {"train": 3, "test": 1}

    assert len(Few.load_tasks("train")) == 3


def test_a_class_may_list_its_variants_and_difficulties() -> None:
    class Sized(Numbers):
        difficulties = (1, 2, 3)
        variants = {"1": {"random_baseline": 0.5}, "odd": {"difficulties": (1, 3)}}
        version = "7"

    catalog = Catalog([Sized])
    assert sorted(catalog) == ["sized", "sized-1", "sized-odd"]
    assert Sized.variants["1"] == {"difficulties": (1,), "random_baseline": 0.5}


def test_splits_that_a_class_lists_stay_in_its_subclasses_and_variants() -> None:
    class Own(Numbers):
        splits = {**Numbers.splits_of(("easy",)), "train": Split([Number(id="one", value=1)])}
        variants = {"easy": {}}

    class Below(Own):
        pass

    catalog = Catalog([Own])
    for splits in (Own.splits, Below.splits, catalog["own-easy"].splits):
        assert splits["train"].get(0).id == "one"  # type: ignore[union-attr]


async def test_a_host_serves_fresh_tests_and_finds_them_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    class Served(Sums):  # type: ignore[misc]  # loaded from a file
        pass

    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    async with EpisodeHost([Served]) as host:
        split = host.catalog["served"].splits["test"]
        task = split.get(7)
        assert task.id != "test-7"
        assert split.find(task.id) == (7, task)
