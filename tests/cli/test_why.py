"""What went wrong is on the screen, with how often, and in the exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from terminal import serving

Ludus = Callable[..., CompletedProcess[str]]

pytestmark = pytest.mark.timeout(180)

SILENT = """
import no_such_package_of_the_oracle
from judged import Judged as Imported
"""

JUDGED = '''
from ludus.server import Call, Environment, Result, Reward, Task, tool


class Judged(Environment[Task]):
    """The judge is silent about odd tasks, and the environment breaks in the last."""

    splits = {"train": [Task(id=str(n)) for n in range(7)], "validation": [Task(id=str(n)) for n in range(11, 51, 2)]}

    def prompt(self) -> str:
        return "Go."

    @tool(ends=True)
    def go(self) -> Result:
        """Go."""
        if self.task.id == "6":
            1 / 0
        silent = int(self.task.id) % 2
        return Result("ok", reward=Reward.unscored("judge 'style': HTTP 503") if silent else Reward.of(1.0))


async def go(conversation):
    return Call("go")


async def lazy(conversation):
    import no_such_package
'''


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("judged") / "judged.py"
    path.write_text(JUDGED)
    path.with_name("silent.py").write_text(SILENT)
    return path


@pytest.fixture(scope="module")
def server(judged: Path) -> Iterator[str]:
    with serving(f"{judged}:Judged") as address:
        yield address


def test_the_commonest_causes_are_shown_with_counts_and_make_the_exit_code_1(
    ludus: Ludus, server: str, judged: Path
) -> None:
    for command in (["run"], ["calibrate", "--samples", "1"]):
        done = ludus(command[0], server, "judged", *command[1:], "--policy", f"{judged}:go", "--split", "train")
        assert done.returncode == 1, done.stderr
        assert "4 of 7 episodes have no reward" in done.stderr
        assert "3 × unscored: judge 'style': HTTP 503" in done.stderr
        assert "1 × environment failure: " in done.stderr
        assert "ZeroDivisionError" in done.stderr


def test_without_any_reward_the_exit_code_is_5_and_the_run_ends_early(ludus: Ludus, server: str, judged: Path) -> None:
    silent = ("run", server, "judged", "--policy", f"{judged}:go", "--split", "validation", "-c", "1")
    done = ludus(*silent)
    assert done.returncode == 5, done.stderr
    assert "8 of 8 episodes" in done.stderr
    assert "stopped early" in done.stderr
    done = ludus(*silent, "--keep-going")
    assert done.returncode == 5, done.stderr
    assert "20 of 20 episodes" in done.stderr


def test_a_missing_package_of_the_policy_is_named_with_pips_command(ludus: Ludus, server: str, judged: Path) -> None:
    done = ludus("run", server, "judged", "--policy", f"{judged}:lazy", "-n", "2")
    assert done.returncode == 5
    assert "pip install no_such_package" in done.stderr


def test_an_oracle_whose_package_is_missing_is_found_before_playing(
    ludus: Ludus, server: str, judged: Path, tmp_path: Path
) -> None:
    source = f"{judged.with_name('silent.py')}:Imported"
    done = ludus("run", server, "judged", "--policy", "oracle", "--source", source, "--out", "played.jsonl")
    assert done.returncode in (3, 6), done.stderr
    assert "no_such_package_of_the_oracle" in done.stderr
    assert "pip install" in done.stderr
    assert "episodes" not in done.stdout
    assert not (tmp_path / "played.jsonl").exists() or not (tmp_path / "played.jsonl").stat().st_size


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ((), 2, ("--api-key", "OPENAI_API_KEY", "--base-url")),
        (("--base-url", "127.0.0.1:9/v1"), 2, ("--base-url", "http://127.0.0.1:9/v1")),
        (("--base-url", "http://127.0.0.1:9/v1"), 4, ("model endpoint", "http://127.0.0.1:9/v1")),
    ],
    ids=["no key", "no scheme", "nothing listens"],
)
def test_what_no_model_request_could_succeed_with_is_found_before_playing(
    ludus: Ludus, server: str, options: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    done = ludus("run", server, "judged", "--policy", "openai", "--model", "m", *options)
    assert done.returncode == code, done.stderr
    said = " ".join(done.stderr.replace("│", " ").split())
    assert [word for word in words if word not in said] == []
    assert "--token" not in said
    assert done.stdout == ""
