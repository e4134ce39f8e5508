"""Coding in a sandbox: hidden tests decide whether a program is right, and a judge how readable it is.

The policy writes `solution.py` in its sandbox, tries it, and submits it. The tests run in a second sandbox that gets
only that file, and the expected values never enter it. The judge is optional: set EXAMPLE_JUDGE_MODEL,
LUDUS_JUDGE_API_KEY and, for another endpoint than OpenAI's, EXAMPLE_JUDGE_URL. No verdict means no reward.
A task is a chain of three list operations, and the operations of a test, in any order, are those of no training task:
several orders of the same ones often give the same function.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import partial
from itertools import combinations, permutations
from random import Random
from typing import Final

from ludus.server import (
    Answer,
    Call,
    Endpoint,
    Environment,
    EpisodeLimits,
    FromEnvironment,
    FromTask,
    FunctionTest,
    FunctionTests,
    Judge,
    Limits,
    Private,
    Result,
    Rubric,
    SandboxSettings,
    Split,
    StepResult,
    Task,
    Weighted,
    tool,
)

OPERATIONS: Final = {
    "keep the even numbers": "[n for n in values if n % 2 == 0]",
    "drop the negative numbers": "[n for n in values if n >= 0]",
    "square each number": "[n * n for n in values]",
    "add 3 to each number": "[n + 3 for n in values]",
    "reverse the order": "values[::-1]",
    "sort in ascending order": "sorted(values)",
    "keep only the first of equal numbers": "list(dict.fromkeys(values))",
    "leave out the last number, if there is one": "values[:-1]",
}
"""What a task says, and the Python expression that does it."""

SETS: Final = Random(0).sample(list(combinations(OPERATIONS, 3)), 56)
SPLITS: Final = {
    split: Random(split).sample(chains, len(chains))
    for split, sets in {"train": SETS[:42], "validation": SETS[42:49], "test": SETS[49:]}.items()
    if (chains := [chain for operations in sets for chain in permutations(operations)])
}
FILE: Final = "solution.py"


class Problem(Task):
    """A function to write."""

    steps: tuple[str, ...]
    tests: Private[list[FunctionTest]]


def make_problem(split: str, index: int) -> Problem:
    """Return the task at an index, with tests that are the same each time."""
    rng, steps, tests = Random(f"{split}/{index}"), SPLITS[split][index], []
    for length in (6, 8, 10, 12):  # short lists would be right by chance
        values = expected = [rng.randint(-9, 9) for _ in range(length)]
        for step in steps:
            expected = eval(OPERATIONS[step], {"values": expected})
        tests.append(FunctionTest([values], expected, hidden=True))
    return Problem(id=f"{split}-{index}", steps=steps, tests=tests)


def make_rubric(model: str | None) -> Rubric:
    """Return the rubric: the share of passed tests, and with a judge a fifth of the reward for readability."""
    right = FunctionTests(function="transform", path=FILE, source=None, tests=FromTask("tests"), name="tests", weight=4)
    if model is None:
        return Rubric(right, name="coding", version="1")
    endpoint = Endpoint(model, os.environ.get("EXAMPLE_JUDGE_URL", "https://api.openai.com/v1"))
    readable = Judge("Is this Python program easy to read?", endpoint, of=FromEnvironment("program"), name="readable")
    return Rubric(Weighted([right, readable]), name="coding", version="1-judged")


class Coding(Environment[Problem]):
    """Write a Python function that transforms a list of numbers."""

    version = "1.1.0"
    splits = {split: Split.lazy(partial(make_problem, split), len(chains)) for split, chains in SPLITS.items()}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=20)
    sandbox_settings = SandboxSettings(limits=Limits(seconds=10, memory=256 * 2**20), warm=4)
    verifier_sandbox = "separate"
    artifacts = (FILE,)
    rubric = make_rubric(os.environ.get("EXAMPLE_JUDGE_MODEL"))
    program = ""
    """The program that the policy wrote last, which the judge reads."""

    def prompt(self) -> str:
        """Return what the function has to do."""
        steps = "\n".join(f"{number}. {step}" for number, step in enumerate(self.task.steps, 1))
        return (
            f"Write a Python function transform(values) that takes a list of integers and returns a list:\n{steps}\n"
            "Save it with `write`, try it with `run`, and call `submit`. Hidden tests call the function."
        )

    @tool
    async def write(self, program: str) -> str:
        """Save solution.py, replacing an earlier version.

        Args:
            program: the whole text of the file.
        """
        self.program = program
        await self.sandbox.write(FILE, program.encode())
        return f"solution.py has {len(program)} characters"

    @tool
    async def run(self, code: str) -> str:
        """Run Python code next to solution.py, and return what it prints.

        Args:
            code: the code, such as: from solution import transform; print(transform([1, 2]))
        """
        result = await self.sandbox.run(["python3", "-c", code])
        return f"{result.text}{result.stderr.decode(errors='replace')}({result.ending})"

    @tool(ends=True)
    async def submit(self) -> Result:
        """Submit solution.py. This ends the episode."""
        return Result("Submitted.", finished=True)

    @classmethod
    def oracle(cls, task: Problem) -> Generator[Call | Answer, StepResult, None]:
        """Write the chain of expressions."""
        lines = "".join(f"    values = {OPERATIONS[step]}\n" for step in task.steps)
        yield Call("write", {"program": f"def transform(values):\n{lines}    return values\n"})
        yield Call("submit")
