"""`ludus generate environment`: the code of a scripted model runs in a sandbox, and is repaired."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_writer import Said, scripted

from ludus.cli.init import class_name, scaffold
from ludus.evaluation.config import ModelSpec
from ludus.generation import package
from ludus.generation.package import REPORT, PackageRun, generate_package
from ludus.generation.tasks import Calibration

GOOD_ORACLE = 'yield Call("submit", {"word": task.answer})'


def files_of(folder: Path, oracle: str = GOOD_ORACLE) -> str:
    """Return the files of a package as a model writes them."""
    scaffold(folder)
    found = ""
    for name in ("parcels.py", "tests/test_parcels.py", "README.md"):
        text = (folder / name).read_text(encoding="utf-8")
        text = text.replace(GOOD_ORACLE, oracle)
        found += f'<file path="{name}">\n{text}</file>\n'
    return found


def settings(tmp_path: Path, spec: str, **more: Any) -> PackageRun:
    module, cls = class_name("parcels")
    return PackageRun(
        description="Sort parcels.", out=tmp_path / "made" / "parcels", module=module, cls=cls, scaffold=scaffold,
        model=ModelSpec(model=spec), **more,
    )  # fmt: skip


@pytest.mark.suite("generation")
@pytest.mark.timeout(300)
async def test_code_that_fails_is_repaired_and_only_what_passes_is_kept(tmp_path: Path) -> None:
    mark = tmp_path / "escaped"
    wrong = files_of(tmp_path / "a" / "parcels", oracle='yield Call("submit", {"word": "wrong"})')
    spy = f"import contextlib, pathlib\nwith contextlib.suppress(OSError):\n    pathlib.Path({str(mark)!r}).touch()\n"
    wrong = wrong.replace("import random\n", f"import random\n{spy}", 1)
    assert str(mark) in wrong
    replies = [wrong, files_of(tmp_path / "b" / "parcels")]
    async with scripted(lambda body, number: replies[number]) as writer:
        report = await generate_package(settings(tmp_path, writer.spec()))
        asked = writer.requests
    assert [one.failed for one in report.rounds] == ["pytest", None]
    assert "test_the_oracle_earns_the_best_reward" in asked[1]["messages"][-1]["content"]
    assert report.kept
    assert report.lines()[0] == "  uncalibrated: no model has played it"
    assert (tmp_path / "made" / "parcels" / "parcels.py").exists()
    assert "parcels" not in sys.modules
    assert not mark.exists()


@pytest.mark.parametrize(
    ("reply", "failed", "detail"),
    [
        ("Here is a plan.", "files", "lacks README.md"),
        ('<file path="../../evil.py">\n</file>', "files", "evil.py"),
        (Said("<file", finish="length"), "reply", "truncated"),
        (Said("I'm sorry, but no."), "reply", "refused"),
        (
            '<file path="parcels.py">\nclass (</file><file path="tests/test_parcels.py"></file>'
            '<file path="README.md"></file>',
            "files",
            "it is not Python",
        ),
    ],
)  # fmt: skip
async def test_a_reply_without_a_package_is_rejected(
    tmp_path: Path, reply: str | Said, failed: str, detail: str
) -> None:
    async with scripted(lambda body, number: reply) as writer:
        report = await generate_package(settings(tmp_path, writer.spec(), rounds=2, keep_rejected=True))
    assert not report.kept
    assert [one.failed for one in report.rounds] == [failed, failed]
    assert detail in report.rounds[-1].detail
    assert not (tmp_path / "made" / "parcels").exists()
    assert (tmp_path / "made" / "rejected" / "parcels").is_dir()
    assert not (tmp_path / "evil.py").exists()
    assert not (tmp_path / "made" / "evil.py").exists()


async def test_more_rounds_go_on_from_what_was_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = 0

    async def judge(*given: Any) -> tuple[tuple[str, str], bytes]:
        nonlocal judged
        judged += 1
        return ("pytest", f"1 failed in 0.{judged} s"), b""  # as pytest does, it never says the same twice

    monkeypatch.setattr(package, "_judged", judge)
    async with scripted(lambda body, number: f"version {number}") as writer:
        await generate_package(settings(tmp_path, writer.spec(), rounds=2))
        report = await generate_package(settings(tmp_path, writer.spec(), rounds=3, resume=True))
    assert len(report.rounds) == len(writer.requests) == 3
    assert report.spending.requests == 3
    assert [one["content"] for one in writer.requests[-1]["messages"] if one["role"] == "assistant"] == ["version 1"]


TAMPERING = """

def test_that_puts_a_better_module_in_the_place_of_this_one() -> None:
    import pathlib
    for path in (pathlib.Path("parcels.py"), pathlib.Path(__file__).parents[1] / "parcels.py"):
        path.write_text(GOOD, encoding="utf-8")
"""


@pytest.mark.suite("generation")
@pytest.mark.timeout(300)
async def test_tests_that_change_the_package_do_not_change_what_is_validated(tmp_path: Path) -> None:
    good = files_of(tmp_path / "a" / "parcels")
    module = (tmp_path / "a" / "parcels" / "parcels.py").read_text(encoding="utf-8")
    tests = (tmp_path / "a" / "parcels" / "tests" / "test_parcels.py").read_text(encoding="utf-8")
    bad = module.replace(GOOD_ORACLE, 'yield Call("submit", {"word": "wrong"})')
    assert bad != module
    first = "def test_that_passes() -> None:\n    assert True\n"
    reply = good.replace(module, bad).replace(tests, f"GOOD = {module!r}\n\n\n{first}{TAMPERING}")
    async with scripted(lambda body, number: reply) as writer:
        report = await generate_package(settings(tmp_path, writer.spec(), rounds=1))
    assert [one.failed for one in report.rounds] == ["validate"]
    assert "oracle-max" in report.rounds[0].detail
    assert not report.kept


@pytest.mark.suite("generation")
@pytest.mark.timeout(300)
async def test_what_passes_is_played_by_the_model_of_the_calibration_and_the_report_has_its_pass_rate(
    tmp_path: Path,
) -> None:
    good = files_of(tmp_path / "a" / "parcels")
    players: list[str] = []

    def script(body: dict[str, Any], number: int) -> str:
        if body["model"] != "player":
            return good
        players.append(body["model"])
        return "I give up."

    async with scripted(script) as writer:
        calibration = Calibration(ModelSpec(model=writer.spec("player")), samples=2)
        report = await generate_package(settings(tmp_path, writer.spec(), calibration=calibration, calibration_tasks=3))
    assert report.kept
    found = report.calibration
    assert found is not None
    assert (found.policy, found.tasks, found.attempts, found.passes, found.rate) == ("player", 3, 6, 0, 0.0)
    assert len(players) >= 6
    assert report.lines()[0].startswith("  player solves 0 of 6 episodes (0%) of 3 tasks, mean reward 0.000")
    assert report.spending.requests == len(writer.requests)
    kept = tmp_path / "made" / "parcels" / REPORT
    assert json.loads(kept.read_text(encoding="utf-8"))["calibration"]["attempts"] == 6
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.suite("generation")
@pytest.mark.timeout(300)
async def test_the_command_writes_an_environment_and_says_that_it_is_uncalibrated(tmp_path: Path) -> None:
    good = files_of(tmp_path / "a" / "parcels")
    (tmp_path / "idea.md").write_text("Sort parcels by weight.", encoding="utf-8")

    async def generate(url: str, *more: str) -> tuple[int, str]:
        command = [
            str(Path(sys.executable).with_name("ludus")), "generate", "environment", "idea.md", "--model", url,
            "--out", "made/parcels", "--rounds", "1", *more,
        ]  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, env={**os.environ, "OPENAI_API_KEY": "none", "COLUMNS": "200"},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    async with scripted(lambda body, number: good if number else "no files") as writer:
        code, said = await generate(writer.spec(), "--keep-rejected")
        assert code == 1, said
        assert "not kept" in said
        assert "round 1: files fails" in said
        rejected = tmp_path / "made" / "rejected"
        assert (rejected / "parcels").is_dir()
        assert rejected.stat().st_mode & 0o777 == 0o700
        shutil.rmtree(tmp_path / "made")
        code, said = await generate(writer.spec())
        assert code == 0, said
        assert "kept in made/parcels: read it before you use it" in said
        assert "uncalibrated: no model has played it" in said
        assert "Sort parcels by weight." in json.dumps(writer.requests[1])
        code, said = await generate(writer.spec())
        assert (code, len(writer.requests)) == (3, 2), said
        assert "exists and is not empty" in said
        assert "Traceback" not in said
