"""`ludus generate tasks`, with real servers that play the candidates and a real endpoint whose replies are scripted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_writer import Said, array, scripted

from ludus.environments.arithmetic import Arithmetic
from ludus.evaluation.config import ModelSpec
from ludus.generation.duplicates import Duplicates, words
from ludus.generation.journal import Journal
from ludus.generation.model import Budget, tokens_of
from ludus.generation.propose import Proposing, objects_in
from ludus.generation.task_folder import TasksSettings, load_tasks, read_records
from ludus.generation.tasks import Calibration, TaskRun, generate_tasks
from ludus.generation.template import Template, evaluate
from ludus.protocol.errors import AuthoringError, Conflict, EveryAttemptFailed, InvalidParams, Unauthenticated
from ludus.server import HeldOutTask
from ludus.server.authoring.generation import make_task, whole_fields

ENVIRONMENT = '''
from collections.abc import Generator
from ludus.server import Answer, Call, Environment, Private, Split, StepResult, Task

class Riddle(Task):
    question: str
    answer: Private[str]
    broken: Private[str] = ""

def riddles(split: str, words: tuple[str, ...]) -> Split[Riddle]:
    return Split([Riddle(id=f"{split}-{i}", question=f"What does {w} mean in Latin class?", answer=w[::-1])
                  for i, w in enumerate(words)])

class Riddles(Environment[Riddle]):
    """Say a word backward."""
    name = "riddles"
    splits = {"train": riddles("train", ("amicus", "bellum")), "test": riddles("test", ("secretum", "arcanum"))}
    reward_range = (0.0, 1.0)

    def prompt(self) -> str:
        return self.task.question

    def grade(self, answer: str) -> float:
        if self.task.broken == "free":
            return 1.0
        return float(answer == self.task.answer and self.task.broken != "impossible")

    @classmethod
    def oracle(cls, task: Riddle) -> Generator[Call | Answer, StepResult, None]:
        yield Answer(task.answer)
'''


@pytest.fixture
def riddles(tmp_path: Path) -> str:
    (tmp_path / "riddles.py").write_text(ENVIRONMENT, encoding="utf-8")
    return str(tmp_path / "riddles.py")


def riddle(word: str, broken: str = "") -> dict[str, str]:
    return {"question": f"How is {word} read from its end, letter by letter?", "answer": word[::-1], "broken": broken}


def proposing(run: dict[str, Any], spec: str, **more: Any) -> TaskRun:
    per_request = more.pop("per_request", 5)
    defaults: dict[str, Any] = {
        "mode": "propose", "count": 2, "model": ModelSpec(model=spec), "checks": (), "keep_rejected": True,
        "make_source": lambda published, writer: Proposing(published, writer, seed=0, per_request=per_request),
    }  # fmt: skip
    return TaskRun(**{**defaults, **run, **more})


async def test_only_good_tasks_are_kept_and_each_rejection_is_counted(riddles: str, tmp_path: Path) -> None:
    replies: list[Said | str] = [
        array(riddle("fenestra"), riddle("fenestra"), {"question": "no answer"}, riddle("porta", "impossible"),
              riddle("mensa", "free")),
        array({"question": "What does secretum mean in Latin class?", "answer": "muterces"},
              {"question": "What does  AMICUS mean, in Latin class?", "answer": "sucima"},
              {**riddle("fenestra"), "question": "How is fenestra read from its end, letter by letter, please?"}),
        "I'm sorry, but I can't help with that.",
        "no JSON at all",
        Said('[{"question": "How is stel', finish="length"),
        array(riddle("aqua")),
    ]  # fmt: skip

    async with scripted(lambda body, number: replies[min(number, len(replies) - 1)]) as writer:
        out = tmp_path / "out"
        budget = Budget(price_in=1.0, price_out=10.0)
        run = {"target": riddles, "out": out, "count": 2, "concurrency": 1, "budget": budget, "similarity": 0.65}
        report = await generate_tasks(proposing(run, writer.spec()))
    kept = [record for _, record in read_records(out / "train.jsonl")]
    assert [record.fields["answer"] for record in kept] == ["artsenef", "auqa"]
    assert report.rejected == {
        "schema": 1, "duplicate": 2, "contaminated": 1, "near_duplicate": 1, "unsolvable": 1, "free_reward": 1
    }  # fmt: skip
    assert report.replies_without_task == {"refused": 1, "malformed": 1, "truncated": 1}
    assert report.spending.requests == len(writer.requests) == 6
    assert report.spending.cost == pytest.approx(6 * (100 * 1.0 + 50 * 10.0) / 1e6)
    assert report.stopped is None
    assert report.proposed == 9
    assert [(one.name, one.seen, one.passed) for one in report.filters] == [
        ("schema", 9, 8), ("duplicates", 8, 4), ("oracle", 4, 3), ("no-op and random", 3, 2), ("validate", 2, 2)
    ]  # fmt: skip
    first = kept[0].provenance
    assert (first.model, first.seed, first.number, first.mode) == ("scripted", 0, 0, "propose")
    assert first.prompt is not None
    assert {"schema", "duplicates", "oracle"} <= set(first.checks)
    prompts = json.dumps(writer.requests)
    assert "amicus" in prompts
    assert "secretum" not in prompts, "a held-out task must not be an example"
    reasons = [json.loads(line)["reason"] for line in (out / "rejected.jsonl").read_text().splitlines()]
    assert len(reasons) == 10
    served = load_tasks(out, TasksSettings())
    assert served.name == "riddles-generated"
    assert [served.splits["train"].get(index).answer for index in range(2)] == ["artsenef", "auqa"]  # type: ignore[union-attr]


@pytest.mark.suite("generation")
async def test_a_run_goes_on_without_paying_twice(riddles: str, tmp_path: Path) -> None:
    words = ("fenestra", "porta", "mensa", "aqua", "ignis", "ventus", "lapis", "arbor")

    async with scripted(lambda body, number: array(riddle(words[number]))) as writer:
        run = {"target": riddles, "out": tmp_path / "out", "count": 3, "concurrency": 1, "output_tokens": 300}
        nothing = await generate_tasks(proposing({**run, "budget": Budget(max_tokens=1)}, writer.spec(), per_request=1))
        assert (nothing.kept, len(writer.requests)) == (0, 0)
        (tmp_path / "out" / "journal.jsonl").unlink()
        spent = Budget(max_tokens=1000)
        first = await generate_tasks(proposing({**run, "budget": spent}, writer.spec(), per_request=1))
        assert first.stopped is not None
        assert "--max-tokens 1000" in first.stopped
        paid = len(writer.requests)
        assert 0 < paid < 4, "a request is made only if even its longest reply is within the budget"
        assert spent.ledger.input_tokens + spent.ledger.output_tokens <= 1000
        journal = tmp_path / "out" / "journal.jsonl"
        journal.write_bytes(journal.read_bytes() + b'{"kind": "reply", "ke')  # it was killed while it wrote
        second = await generate_tasks(proposing({**run, "resume": True}, writer.spec(), per_request=1))
        assert second.kept == 3
        assert len(writer.requests) == 4, "the replies that were paid for are not requested again"
        assert second.spending.requests == 4


@pytest.mark.suite("generation")
async def test_calibration_keeps_tasks_within_the_band(riddles: str, tmp_path: Path) -> None:
    def script(body: dict[str, Any], number: int) -> str:
        question = body["messages"][-1]["content"]
        if body["model"] == "player":
            return "artsenef" if "fenestra" in question else "no"
        return array(riddle("fenestra"), riddle("porta"))

    async with scripted(script) as writer:
        calibration = Calibration(ModelSpec(model=writer.spec("player")), samples=2, low=0.5, high=1.0)
        run = {"target": riddles, "out": tmp_path / "out", "count": 2, "concurrency": 2, "calibration": calibration}
        report = await generate_tasks(proposing(run, writer.spec(), most=4))
    [(_, record)] = list(read_records(tmp_path / "out" / "train.jsonl"))
    assert record.provenance.calibration is not None
    assert (record.provenance.calibration.passes, record.provenance.calibration.attempts) == (2, 2)
    assert report.rejected["too_hard"] >= 1


async def test_an_endpoint_that_refuses_the_key_ends_the_run(riddles: str, tmp_path: Path) -> None:
    async with scripted(lambda body, number: Said("no such key", status=401)) as writer:
        with pytest.raises(Unauthenticated, match="no such key"):
            await generate_tasks(proposing({"target": riddles, "out": tmp_path / "out"}, writer.spec()))


async def test_an_endpoint_that_keeps_failing_ends_the_run(riddles: str, tmp_path: Path) -> None:
    async with scripted(lambda body, number: Said("unsupported", status=400)) as writer:
        run = {"target": riddles, "out": tmp_path / "out", "concurrency": 1}
        with pytest.raises(EveryAttemptFailed, match="3 requests"):
            await generate_tasks(proposing(run, writer.spec(), per_request=1))


def test_a_journal_belongs_to_one_run_and_one_process(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, {"seed": 1}, resume=False) as first:
        first.put("reply", "a", {"text": "x"})
        with pytest.raises(Conflict, match="in use"):
            Journal(path, {"seed": 1}, resume=True)
    with pytest.raises(InvalidParams, match="--resume"):
        Journal(path, {"seed": 1}, resume=False)
    with pytest.raises(InvalidParams, match="seed=1"):
        Journal(path, {"seed": 2}, resume=True)
    with Journal(path, {"seed": 1}, resume=True) as again:
        assert again.get("reply", "a") == {"text": "x"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
        ('{"tasks": [{"a": 1}]}', [{"a": 1}]),
        ('{"a": 1}', [{"a": 1}]),
        ('[{"a": 1}, {"a":', [{"a": 1}]),
        ('```json\n[{"a": 1}]\n```', [{"a": 1}]),
        ('[{"a": NaN}]', []),
        ("[[[[", []),
        ("nothing", []),
    ],
)
def test_whole_objects_of_a_reply_are_read(text: str, found: list[Any]) -> None:
    assert list(objects_in(text)) == found


def test_near_duplicates_are_found_whatever_the_order_of_adding() -> None:
    cls = Arithmetic
    known = Duplicates(0.5)
    one = make_task(cls, "one", {"expression": "(3/4) + 17 × 2 - 15 + 8 - 99", "difficulty": "hard"})
    known.add(one, "training", "train/one")
    same = known.find(make_task(cls, "two", {"expression": "(3/4)+17×2-15+8-99", "difficulty": "hard"}))
    near = known.find(make_task(cls, "three", {"expression": "(3/4) + 17 × 2 - 15 + 8 - 98", "difficulty": "hard"}))
    other = known.find(make_task(cls, "four", {"expression": "5^2 - 31 + 4.5", "difficulty": "hard"}))
    assert (same and same.reason, near and near.reason, other) == ("duplicate", "near_duplicate", None)


def test_arithmetic_computes_answers_and_refuses_held_out_numbers() -> None:
    task = make_task(Arithmetic, "x", {"expression": "12 * (4 + 5)", "difficulty": "medium"})
    assert whole_fields(task) == {"expression": "12 × (4 + 5)", "difficulty": "medium", "solution": "108"}
    with pytest.raises(HeldOutTask):
        make_task(
            Arithmetic,
            "x",
            {"expression": Arithmetic.load_tasks("test", ("hard",))[0].expression, "difficulty": "hard"},
        )
    with pytest.raises(ValueError, match="solution"):
        make_task(Arithmetic, "x", {"expression": "1 + 1", "difficulty": "easy", "solution": "3"})


def test_a_template_draws_the_same_values_for_the_same_seed(tmp_path: Path) -> None:
    import random

    path = tmp_path / "t.toml"
    path.write_text(
        '[slots.a]\ninteger = [10, 99]\n[slots.b]\ncompute = "a * 2 + 1"\n[task]\ntext = "{a} and {b}"\nvalue = "{b}"\n'
        '[rules]\nwhere = ["b > 100"]\n',
        encoding="utf-8",
    )
    template = Template(path)
    drawn = template.fill(random.Random(4))
    assert drawn == template.fill(random.Random(4))
    assert drawn["text"] == f"{(drawn['value'] - 1) // 2} and {drawn['value']}"
    assert drawn["value"] > 100


@pytest.mark.parametrize(
    "text", ["__import__('os')", "a.b", "(1).__class__", "2 ** 999", "[1]", "'a' * 10**9", "unknown", "lambda: 1"]
)
def test_templates_compute_nothing_but_values(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        evaluate(text, {"a": 1})


def test_tasks_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_text(
        json.dumps(
            {"source": "arithmetic", "environment": "arithmetic", "version": "0.0.1", "splits": {"train": "train"}}
        )
    )
    (tmp_path / "train.jsonl").write_text("")
    with pytest.raises(AuthoringError, match=r"version 0\.0\.1"):
        load_tasks(tmp_path, TasksSettings())


@pytest.mark.suite("generation")
async def test_a_request_that_fails_makes_no_later_one_be_paid_for_again(riddles: str, tmp_path: Path) -> None:
    good = {0: "fenestra", 8: "porta", 9: "mensa"}

    def script(body: dict[str, Any], number: int) -> Said | str:
        if number == 1:
            return Said("not now", status=400)
        return array(riddle(good[number])) if number in good else "no task"

    async with scripted(script) as writer:
        run = {"target": riddles, "out": tmp_path / "out", "count": 3, "concurrency": 1}
        first = await generate_tasks(proposing(run, writer.spec(), per_request=1, most=8))
        assert (first.kept, len(writer.requests)) == (1, 8)
        second = await generate_tasks(proposing({**run, "resume": True}, writer.spec(), per_request=1))
    assert second.kept == 3
    assert len(writer.requests) == 8 + 1 + 4, "the failed request again, and one batch that is new"
    assert second.spending.requests == 12


@pytest.mark.suite("generation")
async def test_a_calibration_that_was_cut_off_is_not_paid_for_again(riddles: str, tmp_path: Path) -> None:
    def script(body: dict[str, Any], number: int) -> str:
        if body["model"] == "player":
            return "artsenef" if "fenestra" in body["messages"][-1]["content"] else "no"
        return array(riddle("fenestra"), riddle("porta"))

    async with scripted(script) as writer:
        calibration = Calibration(ModelSpec(model=writer.spec("player")), samples=2, low=0.5, high=1.0)
        run = {"target": riddles, "out": tmp_path / "out", "count": 1, "concurrency": 1, "calibration": calibration,
               "output_tokens": 300}  # fmt: skip
        first = await generate_tasks(proposing({**run, "budget": Budget(max_tokens=880)}, writer.spec()))
        assert first.stopped is not None
        assert 0 < sum(one["model"] == "player" for one in writer.requests) < 4
        second = await generate_tasks(proposing({**run, "resume": True}, writer.spec()))
    assert second.kept == 1
    assert sum(one["model"] == "player" for one in writer.requests) == 4
    assert second.spending.requests == len(writer.requests) == 5


async def test_a_journal_that_was_changed_is_refused(riddles: str, tmp_path: Path) -> None:
    async with scripted(lambda body, number: array(riddle("fenestra"))) as writer:
        run = {"target": riddles, "out": tmp_path / "out", "count": 1, "concurrency": 1}
        await generate_tasks(proposing(run, writer.spec()))
        journal = tmp_path / "out" / "journal.jsonl"
        header, *entries = [json.loads(line) for line in journal.read_text().splitlines()]
        assert {one["kind"] for one in entries} == {"reply", "verdict"}
        for changed in entries:
            lines = [header, *({**one, "value": [1]} if one is changed else one for one in entries)]
            journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            with pytest.raises(InvalidParams, match="was changed"):
                await generate_tasks(proposing({**run, "resume": True}, writer.spec()))


def test_an_estimate_is_no_less_than_a_token_for_each_sign_of_chinese() -> None:
    assert tokens_of("天地玄黃宇宙洪荒") >= 8


@pytest.mark.parametrize("similarity", [0.55, 0.56, 0.57, 0.58, 0.8])
def test_sets_that_just_reach_the_similarity_are_compared(similarity: float) -> None:
    """Two sets of which one holds the last of the other's shingles share one of the first ones that are looked up."""
    found = Duplicates(similarity)
    whole = frozenset((str(one), "", "") for one in range(100))
    looked_up = found._prefix(whole)
    in_order = Duplicates(0.01)._prefix(whole) + sorted(whole - set(Duplicates(0.01)._prefix(whole)))
    part = frozenset(in_order[100 - round(100 * similarity) :])
    assert len(part & whole) / len(whole) >= similarity
    assert set(looked_up) & set(found._prefix(part))


def test_signs_that_show_nothing_hide_no_duplicate() -> None:
    assert words("fen\u200bestra\u00ad \u2060porta") == ["fenestra", "porta"]
