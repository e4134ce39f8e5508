"""Where a host sets a secret, the test tasks of every built-in environment follow from it."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from ludus.server import ProceduralEnvironment, Task
from ludus.server.authoring.partition import SplitType
from ludus.server.authoring.procedural import SECRET_VARIABLE

NAMES = [
    pytest.param(name, marks=[pytest.mark.suite("code")] if name == "code" else [])  # its own tests look at its secret
    for name in sorted(entry_points(group="ludus.environments").names)
]


@pytest.mark.parametrize("name", NAMES)
def test_a_secret_gives_other_tests_with_other_ids_and_changes_nothing_else(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = entry_points(group="ludus.environments")[name].load()
    assert issubclass(cls, ProceduralEnvironment)

    def first(split: SplitType) -> list[Task]:
        return [cls.load_task(split, index) for index in range(6)]

    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    train, validation, test = first("train"), first("validation"), first("test")
    monkeypatch.setenv(SECRET_VARIABLE, "nobody knows this")
    unseen = first("test")
    assert first("test") == unseen, "the same secret gives the same tasks"
    assert [first("train"), first("validation")] == [train, validation]
    assert {task.id for task in test}.isdisjoint(task.id for task in unseen)
    assert not any("nobody knows" in f"{task.id} {task.public()}" for task in unseen)
    for one, other in zip(test, unseen, strict=True):
        assert {**vars(one), "id": ""} != {**vars(other), "id": ""}
