"""`ludus generate environment`: the code of a scripted model runs in a sandbox, and is repaired."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_writer import Said, scripted

from ludus.cli.init import class_name, scaffold
from ludus.evaluation.config import ModelSpec
from ludus.generation import package
from ludus.generation.package import PackageRun, generate_package

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

    async def judge(*given: Any) -> tuple[str, str]:
        nonlocal judged
        judged += 1
        return "pytest", f"1 failed in 0.{judged} s"  # as pytest does, it never says the same twice

    monkeypatch.setattr(package, "_judged", judge)
    async with scripted(lambda body, number: f"version {number}") as writer:
        await generate_package(settings(tmp_path, writer.spec(), rounds=2))
        report = await generate_package(settings(tmp_path, writer.spec(), rounds=3, resume=True))
    assert len(report.rounds) == len(writer.requests) == 3
    assert report.spending.requests == 3
    assert [one["content"] for one in writer.requests[-1]["messages"] if one["role"] == "assistant"] == ["version 1"]
