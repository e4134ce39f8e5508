"""`ludus generate tasks --mode backtranslate`: what calls reached becomes the goal of a task."""

from __future__ import annotations

import json
import re
import shutil
import stat
from pathlib import Path
from typing import Any, ClassVar

import pytest
from scripted_writer import Said, scripted

from ludus.client import Policy
from ludus.client.policies.base import Conversation, PolicyResult
from ludus.environments.workplace import Workplace, WorkplaceTask
from ludus.environments.workplace.backward import MOST_CHANGES, describe
from ludus.environments.workplace.environment import goal_of
from ludus.evaluation.config import ModelSpec
from ludus.generation.backtranslate import Actor, Backtranslating
from ludus.generation.candidates import Candidate, Rejected
from ludus.generation.playing import VALIDATED
from ludus.generation.task_folder import TasksSettings, load_tasks, read_records
from ludus.generation.tasks import TaskRun, find_environment, generate_tasks
from ludus.protocol import Answer, Call
from ludus.protocol.errors import Unsupported
from ludus.server import Split
from ludus.server.authoring.generation import read_task, whole_fields
from ludus.testing import play

LAMPS = '''
from collections.abc import Generator, Sequence
from typing import Any, ClassVar
from ludus.server import Answer, Call, Environment, HeldOutTask, Private, Split, StepResult, Task, tool

class House(Task):
    lamps: tuple[str, ...]
    wanted: Private[tuple[str, ...]]
    instruction: str = "Light every second lamp."

def house(split: str, n: int) -> House:
    names = tuple(f"{split}{n}{c}" for c in "abcd")
    return House(id=f"{split}-{n}", lamps=names, wanted=names[::2])

class Lamps(Environment[House]):
    """Switch lamps on."""
    name = "lamps"
    splits = {name: Split([house(name, n) for n in range(20)]) for name in ("train", "test")}
    reward_range = (0.0, 1.0)
    blocking = False

    def setup(self) -> None:
        self.lit: set[str] = set()

    def prompt(self) -> str:
        return f"{self.task.instruction} There are {', '.join(self.task.lamps)}."

    @tool
    def light(self, lamp: str) -> str:
        """Switch a lamp on."""
        self.lit.add(lamp)
        return "lit"

    def grade(self, answer: str) -> float:
        return float(bool(self.lit) and self.lit == set(self.task.wanted))

    @classmethod
    def oracle(cls, task: House) -> Generator[Call | Answer, StepResult, None]:
        for lamp in task.wanted:
            yield Call("light", {"lamp": lamp})
        yield Answer("done")

    def final_state(self) -> Any:
        return sorted(self.lit) or None

    @classmethod
    def describe_state(cls, task: House, state: Any) -> str:
        return "Light " + " and ".join(f"`{lamp}`" for lamp in state) + "."

    @classmethod
    def task_from_state(cls, id: str, task: House, state: Any, calls: Sequence[Call], instruction: str) -> House:
        if len(state) > 3:
            raise HeldOutTask("more than three lamps are for tests")
        return House(id=id, lamps=task.lamps, wanted=tuple(state), instruction=instruction)
'''


@pytest.fixture
def lamps(tmp_path: Path) -> str:
    (tmp_path / "lamps.py").write_text(LAMPS, encoding="utf-8")
    return str(tmp_path / "lamps.py")


def backward(target: str, out: Path, **more: Any) -> TaskRun:
    actor: Actor = more.pop("actor", "perturbed")
    given: dict[str, Any] = {
        "mode": "backtranslate", "count": 4, "checks": (), "keep_rejected": True,
        "make_source": lambda published, writer: Backtranslating(published, actor, writer=writer, seed=3),
        **more,
    }  # fmt: skip
    return TaskRun(target=target, out=out, **given)


@pytest.mark.suite("generation")
@pytest.mark.timeout(300)
async def test_what_was_reached_becomes_the_goal_of_a_task_that_its_own_calls_solve(lamps: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = await generate_tasks(backward(lamps, out, count=5))
    assert report.kept == 5
    rows = [record for _, record in read_records(out / "train.jsonl")]
    assert {row.provenance.mode for row in rows} == {"backtranslate"}
    assert all(row.provenance.source and row.provenance.source.startswith("train/train-") for row in rows)
    for row in rows:
        assert re.findall(r"`([^`]+)`", row.fields["instruction"]) == list(row.fields["wanted"])
        assert set(row.fields["wanted"]) < set(row.fields["lamps"])
    assert {len(row.fields["wanted"]) for row in rows} != {2}, "the perturbed oracle reaches other states, too"
    again = await generate_tasks(backward(lamps, tmp_path / "again", count=5))
    assert again.kept == 5
    assert (tmp_path / "again" / "train.jsonl").read_bytes() == (out / "train.jsonl").read_bytes()


@pytest.mark.suite("generation")
@pytest.mark.timeout(300)
async def test_all_files_of_a_run_can_be_read_by_their_owner_only(lamps: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    await generate_tasks(backward(lamps, out, count=2, most=60, actor="random"))
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in out.iterdir() if path.is_file()}
    assert {"rejected.jsonl", "report.json", "journal.jsonl"} <= files.keys()
    assert set(files.values()) == {0o600}, files


@pytest.mark.suite("generation")
@pytest.mark.timeout(300)
async def test_a_model_words_the_instruction_and_must_keep_what_is_between_backquotes(
    lamps: str, tmp_path: Path
) -> None:
    def script(body: dict[str, Any], number: int) -> Said | str:
        asked = body["messages"][-1]["content"]
        names = re.findall(r"`[^`]+`", asked)
        if number % 3 == 1:
            return "Please switch on some lamps."
        if number % 3 == 2:
            return Said("Please switch", finish="length")
        return f"Could you please switch on {', '.join(names)}?"

    async with scripted(script) as writer:
        report = await generate_tasks(backward(lamps, tmp_path / "out", count=2, model=ModelSpec(model=writer.spec())))
        assert report.kept == 2
        assert "reword instructions" in writer.requests[0]["messages"][0]["content"]
        assert "wanted" not in json.dumps(writer.requests)
    rows = [record for _, record in read_records(tmp_path / "out" / "train.jsonl")]
    for row in rows:
        assert row.fields["instruction"].startswith("Could you please switch on `")
        assert (row.provenance.model, bool(row.provenance.prompt)) == ("scripted", True)
    assert report.replies_without_task["malformed"] >= 1
    assert report.replies_without_task["truncated"] >= 1


async def test_a_state_that_the_environment_holds_out_is_no_training_task(tmp_path: Path) -> None:
    path = tmp_path / "lamps.py"
    path.write_text(LAMPS.replace("if len(state) > 3:", "if len(state) == 1:"), encoding="utf-8")
    published, _ = find_environment(str(path), None)
    made = await Backtranslating(published, "perturbed", seed=3).make(range(12), [])
    kept = [whole_fields(one.task)["wanted"] for one in made if isinstance(one, Candidate)]
    assert {len(one) for one in kept} == {2}
    reasons = {one.rejection.reason for one in made if isinstance(one, Rejected)}
    assert "held_out" in reasons


async def test_an_environment_without_the_three_methods_is_refused_with_their_names(tmp_path: Path) -> None:
    published, _ = find_environment("wordle", None)
    with pytest.raises(Unsupported, match="final_state, describe_state, task_from_state"):
        Backtranslating(published, "random")


# ---- workplace


def moving(id: str) -> dict[str, Any]:
    return {"table": "tickets", "id": id, "new": False, "row": {"status": "done"}}


def test_changes_of_a_company_are_put_into_words_or_refused() -> None:
    new = {"id": "N-9", "ticket": "T-1", "author": "P-1", "body": "It works."}
    text = describe([moving("T-1"), {"table": "comments", "id": "N-9", "new": True, "row": new}])
    assert "For the ticket `T-1`: the status becomes `done`." in text
    assert "Add a new comment: the ticket is `T-1`, the text is `It works.`." in text
    for change, words in (
        ({"table": "mails", "id": "M-1", "new": True, "row": {"body": "x"}}, "a new row of mails"),
        ({"table": "tickets", "id": "T-1", "new": False, "row": None}, "a deleted row of tickets"),
        ({"table": "tickets", "id": "T-1", "new": False, "row": {"title": "x"}}, "a change of tickets.title"),
        ({"table": "comments", "id": "N-9", "new": True, "row": {**new, "body": "a`b"}}, "cannot be quoted"),
        ({"table": "comments", "id": "N-9", "new": True, "row": {**new, "body": "a\nb"}}, "cannot be quoted"),
        ({"table": "comments", "id": "N-9", "new": True, "row": {**new, "body": "a" * 201}}, "cannot be quoted"),
    ):
        with pytest.raises(ValueError, match=words):
            describe([change])
    with pytest.raises(ValueError, match="rows are changed"):
        describe([moving(f"T-{n}") for n in range(MOST_CHANGES + 1)])


def acting(tool: str) -> Policy:
    """A policy that looks for something, and then makes one call of a tool."""

    async def act(conversation: Conversation) -> PolicyResult:
        seen = str(conversation.items[-1])
        ids = re.findall(r"[TM]-\d+|[A-Z]{4,}", seen)
        if conversation.turn == 1:
            look = {"mail_move": "mail_search", "ticket_create": "projects_list"}.get(tool, "tickets_search")
            return Call(look, {"query": "@" if tool == "mail_move" else ""})
        if conversation.turn > 2:
            return Answer("Answer: done")
        if tool == "mail_move":
            return Call(tool, {"mail_id": ids[0], "folder": "archive"})
        if tool == "ticket_comment":
            return Call(tool, {"ticket_id": ids[0], "body": "Seen."})
        arguments = {"project": ids[0], "title": "Paint it", "description": "All of it.", "due": "2026-05-04"}
        return Call(tool, arguments)

    return act


@pytest.mark.parametrize("tool", ["mail_move", "ticket_comment", "ticket_create"])
async def test_a_task_of_workplace_that_was_made_backward_is_graded_by_its_changes(tool: str) -> None:
    published, _ = find_environment("workplace", None)
    (made,) = await Backtranslating(published, acting(tool), seed=1).make([0], [])
    assert isinstance(made, Candidate), made
    assert isinstance(made.task, WorkplaceTask)
    ((last, wanted),) = [(one.tool, one.arguments) for one in goal_of(made.task)[0].steps[-1:]]
    assert last == tool
    assert all(str(value) in goal_of(made.task)[0].request for value in wanted.values())
    again: Any = read_task(WorkplaceTask, made.task.id, json.loads(json.dumps(whole_fields(made.task))))

    class Backward(Workplace):
        """Only that task."""

        name = "workplace"
        variants: ClassVar = {}
        splits: ClassVar = {"train": Split([again])}

    other = Call("ticket_create", {"project": "", "title": "x", "description": "y"})
    async with play(Backward) as served:
        assert (await served.oracle()).reward == 1.0
        projects = await (await served.start()).call("projects_list", query="")
        other.arguments["project"] = re.findall(r"\b[A-Z]{4,}\b", projects.text)[0]
        for calls, reward in (
            ([], 0.0), ([Call(last, wanted)], 1.0), ([other], 0.0), ([Call(last, wanted), other], 0.0),
        ):  # fmt: skip
            episode = await served.start()
            for call in calls:
                assert (await episode.call(call.tool, **call.arguments)).error is None
            await episode.answer("Answer: done")
            assert episode.reward == reward, (calls, episode.components)


@pytest.mark.suite("generation")
@pytest.mark.timeout(600)
async def test_the_gaps_of_workplaces_oracle_make_tasks_that_pass_every_check(tmp_path: Path) -> None:
    report = await generate_tasks(backward("workplace", tmp_path / "out", count=2, most=60, checks=VALIDATED))
    assert report.kept == 2, report.lines()
    served = load_tasks(tmp_path / "out", TasksSettings())
    split = served.splits["train"]
    assert isinstance(split, Split)
    goals = {goal_of(split.get(index))[0].request for index in range(2)}
    assert len(goals) == 2
    assert all(goal.startswith("Make these changes, and no others.") for goal in goals)


# ---- terminal


@pytest.mark.suite("generation")
@pytest.mark.timeout(600)
async def test_the_files_that_commands_leave_make_tasks_of_terminal(tmp_path: Path) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("the environment `terminal` needs bubblewrap")
    report = await generate_tasks(backward("terminal-easy", tmp_path / "out", count=3, most=60))
    assert report.kept == 3, report.lines()
    for _, row in read_records(tmp_path / "out" / "train.jsonl"):
        goal = json.loads(row.fields["goal"])
        assert goal["commands"]
        assert goal["instruction"].startswith("Bring the files of the working folder into this state")
