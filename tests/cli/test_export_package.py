"""`ludus export --form gymnasium` and `--form openenv` write packages without a token, or say what is wrong."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adapter_world import EveryThirdBreaks, Sums
from terminal import run_ludus_here
from threaded import server_in_thread

from ludus.client import EnvironmentInfo, ToolSpec
from ludus.integrations.finite_actions import finite_arguments
from ludus.integrations.packages import ExportedEnvironment
from ludus.protocol.errors import InvalidParams, Unsupported
from ludus.server import Environment, Task, tool


class Said(Environment[Task]):
    """An answer only."""

    splits = {"train": [Task(id="one")]}

    def prompt(self) -> str:
        return "Say yes."

    def grade(self, answer: str) -> float:
        return float(answer == "yes")


class Odd(Environment[Task]):
    """It says \"\"\"quotes\"\"\" and a \\ and $name and an é and a 🎲."""

    name = "odd-2"
    splits = {"train": [Task(id="one")], "test": [Task(id="two")]}

    def prompt(self) -> str:
        return "Look."

    @tool
    def look(self, far: bool) -> str:
        """Look."""
        return "far" if far else "near"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_in_thread(Sums, EveryThirdBreaks, Said, Odd) as server:
        yield server.url


def refused(target: str, *arguments: object, cwd: Path) -> str:
    done = run_ludus_here("export", target, *arguments, cwd=cwd)
    assert done.returncode != 0, done.stdout
    assert not list(cwd.glob(".ludus-export-*"))
    return " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize("form", ["gymnasium", "openenv"])
def test_a_package_is_valid_holds_no_token_and_is_replaced_only_if_it_was_exported(
    url: str, tmp_path: Path, form: str
) -> None:
    out = tmp_path / "package"
    command = ("export", url, "odd-2", "--form", form, "--out", out, "--name", "odd", "--token", "t0p-s3cret")
    done = run_ludus_here(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{form} package of odd-2, played on {url}" in done.stdout
    files = [path for path in out.rglob("*") if path.is_file()]
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert "t0p-s3cret" not in text
        if path.suffix == ".py":
            compile(text, str(path), "exec")
    project = tomllib.loads((out / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["description"] == 'It says """quotes""" and a \\ and $name and an é and a 🎲.'
    again = refused(*map(str, command[1:]), cwd=tmp_path)
    assert "exists; say --overwrite or another --out" in again
    assert run_ludus_here(*command, "--overwrite", cwd=tmp_path).returncode == 0
    (out / "pyproject.toml").write_text("[project]\n")
    assert "was not written by ludus export" in refused(*map(str, command[1:]), "--overwrite", cwd=tmp_path)
    assert (out / "pyproject.toml").read_text() == "[project]\n"


def test_a_local_environment_serves_itself_in_gymnasium_and_needs_an_address_in_openenv(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from ludus.server import Environment, Task\n\n\n"
        "class Mine(Environment[Task]):\n"
        '    """Mine."""\n\n'
        '    splits = {"train": [Task(id="one")]}\n\n'
        "    def prompt(self) -> str:\n"
        '        return "Say yes."\n\n'
        "    def grade(self, answer: str) -> float:\n"
        "        return 1.0\n"
    )
    done = run_ludus_here("export", "mine.py:Mine", "--form", "gymnasium", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"which serves {tmp_path}/mine.py:Mine itself" in done.stdout
    text = (tmp_path / "mine" / "ludus_mine" / "__init__.py").read_text()
    assert f'"target": "{tmp_path}/mine.py:Mine",' in text
    project = tomllib.loads((tmp_path / "mine" / "pyproject.toml").read_text())["project"]
    assert project["dependencies"][0].startswith("ludus-rl[server]>=")
    assert "say --address URL" in refused("mine.py:Mine", "--form", "openenv", cwd=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sms",), "no environment 'sms' here; this server has: "),
        ((), "has several environments, name one of them"),
        (("odd-2",), "'odd-2' cannot name a Python package; say --name odd_2"),
        (("sums", "--name", "2-fast"), "say --name env_2_fast"),
        (("sums", "--split", "tset"), "sums has no split 'tset'; it has: train, test; did you mean 'test'?"),
        (("sums", "-n", "3", "--seed", "1"), "writes a whole environment; leave out -n, --seed"),
        (("sums", "--to", "parquet"), "leave out --to"),
        (("sums", "--address", "10.0.0.5:8000"), "did you mean http://10.0.0.5:8000?"),
        (("sums", "--address", "http://ada:secret@10.0.0.5"), "holds a user or a password"),
        (("sums", "--out", "nowhere.txt/package"), "cannot write"),
    ],
)
def test_wrong_arguments_are_refused_with_what_to_do(
    url: str, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "nowhere.txt").write_text("")
    for form in ("gymnasium", "openenv"):
        assert message in refused(url, *arguments, "--form", form, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["nowhere.txt"]


def test_a_name_of_python_or_openenv_is_refused_where_it_would_hide_a_module(url: str, tmp_path: Path) -> None:
    for name in ("json", "class", "models"):
        message = refused(url, "sums", "--form", "openenv", "--name", name, cwd=tmp_path)
        assert f"say --name env_{name}" in message
        done = run_ludus_here("export", url, "sums", "--form", "gymnasium", "--name", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_options_of_packages_and_a_server_that_is_away(url: str, tmp_path: Path) -> None:
    assert "writes no package; leave out --name, --action" in refused(
        url, "sums", "--name", "x", "--action", "add", cwd=tmp_path
    )
    openenv = refused(url, "sums", "--form", "openenv", "--action", "add", cwd=tmp_path)
    assert "has no action space; leave out --action" in openenv
    assert "is a file of trajectories" in refused("games.jsonl", "--form", "gymnasium", cwd=tmp_path)
    away = refused("http://127.0.0.1:9", "sums", "--form", "gymnasium", cwd=tmp_path)
    assert "cannot reach http://127.0.0.1:9" in away
    action = refused(url, "sums", "--form", "gymnasium", "--action", "add:a=1..3", cwd=tmp_path)
    assert "the argument 'b' of add has no finite set of values" in action
    assert not list(tmp_path.iterdir())


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "where": {"enum": ["up", "down"]},
        "far": {"type": "boolean"},
        "steps": {"type": "integer", "minimum": 1, "exclusiveMaximum": 4},
        "note": {"type": "string"},
    },
    "required": ["where"],
}
TOOLS = (ToolSpec(name="go", description="", input_schema=SCHEMA),)


def test_a_declared_action_has_the_finite_arguments_of_its_tool() -> None:
    name, values = finite_arguments(TOOLS, "go")
    assert name == "go"
    assert {argument: list(found) for argument, found in values.items()} == {
        "where": ["up", "down"], "far": [False, True], "steps": [1, 2, 3],
    }  # fmt: skip
    assert list(finite_arguments(TOOLS, "go:steps=-2..2")[1]["steps"]) == [-2, -1, 0, 1, 2]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("gone", "there is no tool 'gone'; there are: go; did you mean 'go'?"),
        ("go:", "must be TOOL or TOOL:ARGUMENT=LOW..HIGH"),
        ("go:steps=1-3", "'steps=1-3' is no range"),
        ("go:steps=3..1", "is empty or has more than"),
        ("go:steps=0..99999999999", "is empty or has more than"),
        ("go:speed=1..2", "go has no argument speed"),
    ],
)
def test_a_wrong_declaration_of_an_action_says_what_is_wrong(declared: str, message: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        finite_arguments(TOOLS, declared)
    assert message in refusal.value.message


def test_the_range_of_rewards_and_the_kind_of_actions_reach_the_folder() -> None:
    info = EnvironmentInfo.model_validate(
        {
            "name": "said", "description": "", "version": "1", "tools": [], "seedable": False, "gradable": True,
            "splits": [{"name": "train", "type": "train", "count": None}], "forkable": False, "group_scoring": False,
            "reward_range": [-1, 2],
        }
    )  # fmt: skip
    without = info.model_copy(update={"gradable": False})
    with pytest.raises(Unsupported, match="lists no tools and grades no answers"):
        ExportedEnvironment("gymnasium", without, "http://10.0.0.5", "train")
    texts = ExportedEnvironment("openenv", info, "http://10.0.0.5", "train").files()
    assert "range: [-1.0, 2.0]" in texts["openenv.yaml"]
    assert "declared_task_count" not in texts["openenv.yaml"]
    assert "SaidAction(answer='…')" in texts["README.md"]
    package = ExportedEnvironment("gymnasium", info, "http://10.0.0.5", "train").files()
    assert "nondeterministic=True" in package["ludus_said/__init__.py"]
    assert "An action is a text: the final answer" in package["README.md"]
