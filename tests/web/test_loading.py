from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ludus.protocol.errors import AuthoringError, EnvironmentNotFound
from ludus.server.tasks.loading import load_environment, load_environments


@pytest.fixture(autouse=True)
def same_path_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def publish(folder: Path, module: str, source: str, requires: str = "") -> None:
    """An installed distribution `toys` that publishes the environment `toy`."""
    (folder / f"{module}.py").write_text(source)
    info = folder / "toys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n{requires}")
    (info / "entry_points.txt").write_text(f"[ludus.environments]\ntoy = {module}:Toy\n")
    sys.path.insert(0, str(folder))


SOURCE = "from ludus.server import Environment\nclass Toy(Environment):\n    pass\n"


def test_an_environment_is_found_by_its_published_name(tmp_path: Path) -> None:
    publish(tmp_path, "toys_found", SOURCE)
    assert load_environment("toy").__name__ == "Toy"


def test_a_missing_package_answers_with_the_extra_that_brings_it(tmp_path: Path) -> None:
    requires = "Provides-Extra: games\nRequires-Dist: No_Such.Package>=2; extra == 'games'\n"
    publish(tmp_path, "toys_extra", f"import no_such_package.part\n{SOURCE}", requires)
    with pytest.raises(AuthoringError, match=r'pip install "toys\[games\]"'):
        load_environment("toy")


def test_a_missing_package_that_no_extra_brings_answers_with_its_name(tmp_path: Path) -> None:
    publish(tmp_path, "toys_bare", f"import no_such_package\n{SOURCE}")
    with pytest.raises(AuthoringError, match="pip install no_such_package"):
        load_environment("toy")


def test_the_only_environment_of_a_file_needs_no_name(tmp_path: Path) -> None:
    file = tmp_path / "only.py"
    file.write_text(SOURCE)
    assert load_environment(str(file)).__name__ == "Toy"
    file.write_text(SOURCE + "class Other(Environment):\n    pass\n")
    with pytest.raises(EnvironmentNotFound, match=r"has 2 environments; name one: .*only\.py:Toy, .*only\.py:Other"):
        load_environment(str(file))


def test_a_file_imports_its_neighbors(tmp_path: Path) -> None:
    (tmp_path / "neighbor_of_toy.py").write_text("NAME = 'toy'\n")
    (tmp_path / "with_neighbor.py").write_text(f"from neighbor_of_toy import NAME\n{SOURCE}")
    assert load_environment(f"{tmp_path}/with_neighbor.py:Toy").__name__ == "Toy"


TWINS = """
from __future__ import annotations
from pydantic import BaseModel
from ludus.server import Environment, Task, tool


class Part(BaseModel):
    size: int


class Whole(Task):
    part: Part


class First(Environment[Whole]):
    splits = {"train": [Whole(id="one", part=Part(size=1))]}

    def prompt(self) -> str:
        return "hello"

    @tool
    def look(self) -> str:
        "Look."
        return "done"


class Second(First):
    pass
"""


def test_two_classes_of_a_file_are_of_one_module(tmp_path: Path) -> None:
    (tmp_path / "twins.py").write_text(TWINS)
    first, second = load_environments([f"{tmp_path}/twins.py:First", f"{tmp_path}/twins.py:Second"])
    assert issubclass(second, first)


def test_files_of_one_name_and_of_a_modules_name_are_kept_apart(tmp_path: Path) -> None:
    found = []
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        for name in ("json.py", "twins.py"):
            (tmp_path / folder / name).write_text(TWINS)
            (environment,) = load_environments([f"{tmp_path}/{folder}/{name}:First"])
            found.append(environment)
    assert len({cls.__module__ for cls in found}) == 4
    assert sys.modules["json"] is json


def test_a_file_that_failed_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text("1 / 0\n")
    with pytest.raises(AuthoringError, match="ZeroDivisionError"):
        load_environments([f"{tmp_path}/later.py:First"])
    (tmp_path / "later.py").write_text(TWINS)
    (found,) = load_environments([f"{tmp_path}/later.py:First"])
    assert found.__name__ == "First"
