"""A policy that computes as students do, to record demonstrations before training.

    ludus demos arithmetic-easy -n 64000 --policy examples/arithmetic_students.py:student --out runs/arithmetic.jsonl

A student knows the value, and writes each of its digits wrong, by one, with the probability `SLIP`: 29 of 100
answers are right. A model that imitates students knows the form of an answer and which digits are likely; that only the
exact value pays it must find out from the rewards.
"""

from __future__ import annotations

import random
import re

from ludus.client import Answer, Conversation
from ludus.client.seeds import derive_seed
from ludus.environments.arithmetic.expressions import read_expression

SLIP = 1 / 3


async def student(conversation: Conversation) -> Answer:
    """Answer with the value of the task's expression, in which digits may be wrong."""
    rng = random.Random(derive_seed(conversation.seed, "student", conversation.sample))
    value = read_expression(conversation.task.fields["expression"]).value

    def written(digit: re.Match[str]) -> str:
        wrong = rng.random() < SLIP
        return str((int(digit[0]) + wrong * rng.choice((-1, 1))) % 10)

    return Answer(f"Answer: {re.sub('[0-9]', written, str(value))}")
