"""Tests of `arithmetic_students.py`. Run with `pytest examples/test_arithmetic_students.py`."""

from __future__ import annotations

import asyncio

from arithmetic_students import student

from ludus.client import Conversation, TaskRow
from ludus.environments.arithmetic import Arithmetic
from ludus.environments.arithmetic.environment import ArithmeticTask


def answer(task: ArithmeticTask, seed: int) -> str:
    row = TaskRow(id=task.id, split="train", index=0, fields={"expression": task.expression})
    conversation = Conversation("arithmetic-easy", row, seed, 0, 1, (), (), gradable=True)
    return asyncio.run(student(conversation)).text.removeprefix("Answer: ")


def test_a_student_writes_a_third_of_the_digits_wrong_by_one() -> None:
    tasks = [Arithmetic.load_task("train", index, ["easy"]) for index in range(400)]
    answers = [answer(task, index) for index, task in enumerate(tasks)]
    pairs = [
        (a, b) for task, said in zip(tasks, answers, strict=True) for a, b in zip(task.solution, said, strict=True)
    ]
    apart = [(int(a) - int(b)) % 10 if a != "-" else 0 for a, b in pairs]
    assert set(apart) == {0, 1, 9}
    assert 0.28 < sum(one != 0 for one in apart) / len(apart) < 0.38
    assert [answer(task, index) for index, task in enumerate(tasks[:20])] == answers[:20]
