"""`ludus generate tasks --mode hops`: questions by walks through the graph of `search`, or of a user's facts."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ludus.generation.candidates import Candidate
from ludus.generation.hops import Hopping
from ludus.generation.task_folder import TasksSettings, load_tasks, read_records
from ludus.generation.tasks import TaskRun, find_environment, generate_tasks
from ludus.protocol.errors import InvalidParams, Unsupported
from ludus.server import Split
from ludus.testing import play

ROWS = [(f"person {n}", "works for", f"company {n % 701}") for n in range(2500)]
ROWS += [(f"company {n}", "is in", f"town {n % 31}") for n in range(701)]
ROWS += [(f"town {n}", "lies in", f"land {n}") for n in range(31)]
FACTS = {subject: (relation, thing) for subject, relation, thing in ROWS}


def reached(name: str, hops: int) -> str | None:
    """What is that many facts away from a name."""
    for _ in range(hops):
        if name not in FACTS:
            return None
        name = FACTS[name][1]
    return name


@pytest.fixture
def facts(tmp_path: Path) -> str:
    path = tmp_path / "facts.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in ROWS), encoding="utf-8")
    return f"triples:{path}"


def hopping(target: str, out: Path, *hops: int, **more: Any) -> TaskRun:
    given: dict[str, Any] = {
        "mode": "hops", "count": 6, "checks": (), "keep_rejected": True,
        "make_source": lambda published, writer: Hopping(published, hops, seed=2), **more,
    }  # fmt: skip
    return TaskRun(target=target, out=out, **given)


async def test_each_answer_is_as_many_hops_away_as_asked_for(facts: str, tmp_path: Path) -> None:
    published, _ = find_environment(facts, None)
    made = await Hopping(published, [1, 2, 3], seed=5).make(range(60), [])
    tasks = [one for one in made if isinstance(one, Candidate)]
    assert len(tasks) > 20
    assert {one.source for one in tasks} == {"1 hops", "2 hops", "3 hops"}
    for one in tasks:
        fields: dict[str, Any] = dict(one.task)
        hops = int(str(one.source).split()[0])
        starts = [name for name in FACTS if name in str(fields["question"])]
        assert any(str(fields["answer"]) == reached(name, hops) for name in starts), fields
    assert [one.task for one in tasks] == [
        one.task
        for one in await Hopping(published, [1, 2, 3], seed=5).make(range(60), [])
        if isinstance(one, Candidate)
    ]
    other = await Hopping(published, [1, 2, 3], seed=6).make(range(60), [])
    assert [one.task for one in other if isinstance(one, Candidate)] != [one.task for one in tasks]


@pytest.mark.suite("generation")
@pytest.mark.timeout(300)
async def test_questions_of_a_users_facts_are_kept_served_and_won_by_their_oracle(facts: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = await generate_tasks(hopping(facts, out, 2, 3))
    assert report.kept == 6, report.lines()
    rows = [record for _, record in read_records(out / "train.jsonl")]
    assert {row.provenance.mode for row in rows} == {"hops"}
    assert {row.provenance.source for row in rows} == {"2 hops", "3 hops"}
    served = load_tasks(out, TasksSettings())
    split = served.splits["train"]
    assert isinstance(split, Split)
    async with play(served) as playing:
        for index in range(6):
            assert (await playing.oracle(index=index)).reward == 1.0


@pytest.mark.suite("generation")
@pytest.mark.timeout(300)
async def test_walks_through_the_encyclopedia_of_search_make_questions_that_its_oracle_answers(tmp_path: Path) -> None:
    report = await generate_tasks(hopping("search", tmp_path / "out", 2, 4, count=4))
    assert report.kept == 4, report.lines()
    assert {record.provenance.source for _, record in read_records(tmp_path / "out" / "train.jsonl")} == {
        "2 hops", "4 hops"
    }  # fmt: skip


async def test_what_has_no_graph_or_no_such_walk_is_refused(facts: str, tmp_path: Path) -> None:
    published, _ = find_environment("wordle", None)
    with pytest.raises(Unsupported, match="task_from_hops"):
        Hopping(published, [2], seed=0)
    published, _ = find_environment(facts, None)
    with pytest.raises(InvalidParams, match="must be 1 or more"):
        Hopping(published, [0], seed=0)
    with pytest.raises(InvalidParams, match="must be 1 or more"):
        Hopping(published, [], seed=0)


@pytest.mark.suite("generation")
@pytest.mark.timeout(300)
async def test_the_command_makes_questions_of_facts_and_says_how_to_serve_them(facts: str, tmp_path: Path) -> None:
    async def generate(*arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("ludus")), "generate", "tasks", *arguments, cwd=tmp_path,
            env={**os.environ, "COLUMNS": "200"}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    code, said = await generate(facts, "--mode", "hops", "--hops", "2", "-n", "3", "--out", "made")
    assert code == 0, said
    assert "kept 3 of 3 wanted" in said
    assert "To serve them: ludus serve tasks:made" in said
    report = json.loads((tmp_path / "made" / "report.json").read_text(encoding="utf-8"))
    assert (report["mode"], report["kept"]) == ("hops", 3)
    code, said = await generate("wordle", "--mode", "hops", "-n", "1", "--out", "none")
    assert code == 3
    assert "does not define task_from_hops" in said
    assert "Traceback" not in said
    code, said = await generate("triples:none.tsv", "--mode", "hops", "-n", "1", "--out", "none")
    assert code == 3
    assert "none.tsv" in said
    assert "Traceback" not in said
