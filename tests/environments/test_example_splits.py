"""Held-out tasks of examples/ and docs/snippets/ ask for nothing that training never shows.

Who copies an example copies its splits. A split by the last digit of a number shares no task with training, and still
nothing that is learned helps there. tests/environments/test_every_environment.py looks at the library.
"""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from split_features import unseen

from ludus.server import Environment, Split, Task

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("examples", "docs/snippets")
FILES: Final = [
    f"{folder}/{path.name}"
    for folder in FOLDERS
    for path in sorted((ROOT / folder).glob("*.py"))
    if re.search("splits = |ProceduralEnvironment", path.read_text(encoding="utf-8"))
    and not path.stem.startswith("test_")
    if path.stem != "measured"  # its split is a filter of another file's, which needs a measurement
]
SAMPLE: Final = 900
DIVIDED_BY: Final = {"Practice": ("win_in",)}
"""Fields that differ on purpose: positions of random games have no known win, and the policy does not see the field."""


def drawn(split: Split[Any] | Sequence[Any]) -> list[Task]:
    """Return some tasks of a split."""
    split = split if isinstance(split, Split) else Split(split)
    split.prepare()
    known = split.count or 10 * SAMPLE
    return [split.get(index) for index in random.Random(0).sample(range(known), min(known, SAMPLE))]


@pytest.mark.parametrize("file", FILES)
def test_held_out_tasks_ask_for_nothing_that_training_never_shows(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str((ROOT / file).parent))
    spec = importlib.util.spec_from_file_location(f"looked_at_{Path(file).stem}", ROOT / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # pydantic looks for the types of fields there
    spec.loader.exec_module(module)
    for cls in vars(module).values():
        if not (isinstance(cls, type) and issubclass(cls, Environment) and cls.__module__ == module.__name__):
            continue
        for name, split in cls.splits.items():
            if name != "train" and "train" in cls.splits:
                fields = DIVIDED_BY.get(cls.__name__, ())
                assert unseen(drawn(cls.splits["train"]), drawn(split), fields) == {}, f"{cls.__name__}, {name}"


def test_a_split_by_the_digits_of_its_tasks_is_found() -> None:
    class Digits(Task):
        numbers: list[int]

    tasks = [Digits(id=str(n), numbers=[n // 100, n // 10 % 10, n % 10]) for n in range(1000)]
    assert unseen(tasks[::5], tasks[3::5]).keys() == {"numbers[2]: 3…", "numbers[2]: …3", "numbers[2]: 8…",
                                                     "numbers[2]: …8"}  # fmt: skip
    assert unseen([task for task in tasks if int(task.id) % 7], tasks[::7]) == {}
