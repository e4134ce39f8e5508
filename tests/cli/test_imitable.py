"""Demonstrations that call with values that a model cannot know are found, and a `demonstrator` takes their place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from terminal import run_ludus_here

from ludus.checks.imitation import Demonstrations, unread_values
from ludus.client import read_trajectories
from ludus.protocol.trajectory import Trajectory

SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "tickets.py"

DESK = '''
from random import Random
from ludus.server import Call, Environment, Private, Result, Split, Task, tool

class Ticket(Task):
    customer: str
    ticket: Private[int]

def make(index):
    rng = Random(index)
    return Ticket(id=f"t-{index}", customer=rng.choice(["Ana", "Ben", "Cem"]), ticket=rng.randrange(100, 1000))

class Desk(Environment[Ticket]):
    """Assign a customer's ticket."""
    splits = {"train": Split.lazy(make, 200)}

    def prompt(self):
        return f"Assign the ticket of {self.task.customer}."

    @tool
    def search(self, customer: str) -> str:
        """Find the ticket of a customer."""
        return f"ticket {self.task.ticket}" if customer == self.task.customer else "nothing"

    @tool
    def assign(self, ticket: int) -> Result:
        """Assign a ticket."""
        return Result("Done.", reward=float(ticket == self.task.ticket), finished=True)

    @classmethod
    def oracle(cls, task):
        yield Call("assign", {"ticket": task.ticket})

class Sums(Environment[Ticket]):
    """Compute a number that the task keeps to itself, and pick one of two."""
    splits = {"train": [Ticket(id=f"{n}+{n}", customer="", ticket=2 * n) for n in range(60)]}

    def prompt(self):
        return f"What is {self.task.id}? Read it aloud, then choose left or right."

    @tool
    def choose(self, value: int, side: str) -> Result:
        """Choose."""
        return Result("Done.", reward=float(value == self.task.ticket), finished=True)

    @classmethod
    def oracle(cls, task):
        yield Call("choose", {"value": task.ticket, "side": "left"})
'''


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "desk.py").write_text(DESK, encoding="utf-8")
    return tmp_path / "desk.py"


def demos(desk: Path, name: str, *options: Any) -> str:
    done = run_ludus_here("demos", f"{desk}:{name}", "-n", 60, "--out", desk.parent / f"{name}.jsonl", *options,
                          cwd=desk.parent)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def test_calls_with_private_values_that_nothing_showed_are_counted(desk: Path) -> None:
    printed = demos(desk, "Desk", "--keep-duplicates")
    assert "60 of 60 demonstrations call with values that nothing had shown before, such as assign(ticket=" in printed
    assert "in 60 of them they are values of the private field `ticket`; no demonstration calls search" in printed
    assert "60 of them read exactly as one of another task does that calls with other values" in printed
    assert "A model cannot learn these calls from what it reads: define `demonstrator(cls, prompt)`" in printed


def test_the_demonstrator_of_the_docs_is_preferred_to_the_oracle_and_named(tmp_path: Path) -> None:
    tickets = Path(shutil.copy(SNIPPET, tmp_path))
    assert "note:" not in demos(tickets, "Desk")
    episodes = list(read_trajectories(tmp_path / "Desk.jsonl"))
    assert {one.policy for one in episodes} == {"demonstrator"}
    assert {one.value for one in episodes} == {1.0}
    assert [item["name"] for item in episodes[0].items if item["type"] == "function_call"] == ["search", "assign"]
    assert "60 of 60 demonstrations" in demos(tickets, "Desk", "--policy", "oracle", "--overwrite")


def test_a_missing_demonstrator_is_refused_by_name(desk: Path) -> None:
    done = run_ludus_here("run", f"{desk}:Desk", "--policy", "demonstrator", "-n", "1", cwd=desk.parent)
    assert done.returncode != 0
    assert "has no demonstrator; define `demonstrator(cls, prompt)` in Desk" in " ".join(done.stderr.split())


def test_values_that_may_be_computed_are_only_named(desk: Path) -> None:
    printed = demos(desk, "Sums")
    assert "demonstrations call with values that nothing had shown before, such as choose(value=" in printed
    assert "A model learns these calls only if the values follow from what it reads." in printed
    assert "read exactly as" not in printed
    assert "cannot" not in printed


def test_recorded_demonstrations_are_looked_at_without_the_class(desk: Path) -> None:
    demos(desk, "Desk")
    done = run_ludus_here("demos", "--from", desk.parent / "Desk.jsonl", "--out", desk.parent / "b.jsonl",
                          cwd=desk.parent)  # fmt: skip
    assert "demonstrations call with values that nothing had shown before" in " ".join(done.stdout.split())
    assert "private field" not in done.stdout


def episode(number: int, prompt: str, *steps: tuple[dict[str, Any], Any], policy: str = "oracle") -> Trajectory:
    """Return an episode: the prompt, and calls of `act` with their outputs."""
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]}
    ]
    for place, (arguments, output) in enumerate(steps):
        call = f"c{place}"
        items.append({"type": "function_call", "call_id": call, "name": "act", "arguments": json.dumps(arguments)})
        items.append({"type": "function_call_output", "call_id": call, "output": output})
    return Trajectory.model_validate({
        "environment": "desk", "split": "train", "policy": policy, "started_at": 0.0, "seconds": 0.0,
        "task": {"id": str(number), "split": "train", "index": number, "fields": {}}, "items": items,
        "tools": [{"type": "function", "name": "act", "description": "Act.", "parameters": {"enum": ["open"]}}],
    })  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "unread"),
    [
        ([({"ticket": 613}, "")], ["613"]),
        ([({"ticket": 613.0}, "")], ["613"]),
        ([({"find": "Ana"}, [{"type": "input_text", "text": "ticket T-613"}]), ({"ticket": 613}, "")], []),
        ([({"ticket": 613}, ""), ({"ticket": 613}, "")], ["613"]),
        ([({"state": "open", "done": True, "note": None}, "")], []),
        ([({"deep": {"list": [{"id": "ab-77"}]}}, "")], ["ab-77"]),
        ([({"sql": "UPDATE tickets SET owner = 'Ana' WHERE id = 613"}, "")], ["613"]),
        ([({"text": "A sentence of its own words."}, "")], []),
    ],
)
def test_a_value_is_unread_if_no_text_before_its_call_has_it(steps: Any, unread: list[str]) -> None:
    assert [one.value for one in unread_values(episode(1, "Help Ana.", *steps))] == unread


def remark(*episodes: Trajectory) -> str | None:
    seen = Demonstrations()
    for one in episodes:
        seen.add(one)
    return seen.remark()


def test_values_of_many_episodes_are_learned_by_heart() -> None:
    assert remark(*(episode(n, f"Board {n}", ({"column": f"c{n % 7}"}, "")) for n in range(70))) is None
    assert remark(*(episode(n, f"Board {n}", ({"column": f"c{n}"}, "")) for n in range(70))) is not None


def test_a_few_unread_values_among_many_demonstrations_are_no_reason_for_a_message() -> None:
    rare = [episode(n, f"Ticket {n}", ({"ticket": 5000 + n if n < 5 else n}, "")) for n in range(100)]
    assert remark(*rare) is None


def test_what_a_demonstrator_computes_follows_from_what_it_reads() -> None:
    assert remark(*(episode(n, "x", ({"ticket": n + 100}, ""), policy="demonstrator") for n in range(50))) is None
