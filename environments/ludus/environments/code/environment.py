"""Write or repair a Python function or class, which hidden cases check in a sandbox.

An answer may come in two ways, because both are worth training: as a final message with a code block, which needs one
turn and no tool, or by `submit` after trying things with `test` and `run`. The tools keep no files: each call has the
whole program, so that an episode is repeated by its calls alone.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from ludus.environments.code import equivalents, exploits
from ludus.environments.code.grading import check_program, grade_program, program_in
from ludus.environments.code.problem import Problem
from ludus.environments.code.running import CASE_SECONDS, CaseResult, render, run_cases, run_script
from ludus.environments.code.search import search
from ludus.environments.code.showing import call_text, example_text
from ludus.environments.code.tasks import (
    CodeTask,
    broken_of,
    examples_of,
    hidden_of,
    make_held_out_tasks,
    make_task,
    problem_of,
)
from ludus.protocol import Answer, Call, EpisodeLimits, Reward, StepResult
from ludus.server import Difficulty, Limits, ProceduralEnvironment, Result, SandboxSettings, TaskDraw, tool
from ludus.server.rewards.isolated import VISIBLE, hide_package

SHOWN_OUTPUT: Final = 2_000
"""The most characters of output that `run` shows, from its start; of errors, from their end."""

_LIMITS: Final = Limits(
    seconds=30, cpu_seconds=6, memory=512 * 2**20, processes=24, file_size=2**20, disk=16 * 2**20, output=2**20
)


def sandbox_settings(folder: Path, visible: tuple[str, ...]) -> SandboxSettings:
    """Return the settings of the sandboxes.

    Args:
        folder: the folder of this package. It makes the hidden cases, so no program may read it.
        visible: the places of this machine that a sandbox shows.
    """
    hide = hide_package(folder, visible)
    return SandboxSettings(limits=_LIMITS, env=(("PYTHONHASHSEED", "0"),), readonly=hide, warm=4)


class Code(ProceduralEnvironment[CodeTask]):
    """Write or repair a Python function or class; hidden cases decide."""

    version = "0.2.0"
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=20)
    forkable = True
    sandbox_settings = sandbox_settings(Path(__file__).resolve().parent, VISIBLE)
    verifier_sandbox = "separate"
    counts = {"validation": 480, "test": 480}

    problem: Problem

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> CodeTask:
        """Draw a task for training."""
        return make_task(draw)

    @classmethod
    def make_held_out_tasks(cls, draw: TaskDraw[Difficulty], count: int, taken: set[str]) -> Sequence[CodeTask]:
        """Draw all tasks of a split from one generator."""
        return make_held_out_tasks(draw, count, taken)

    def setup(self) -> None:
        """Make the problem of the task, its examples, and for a repair the faulty program."""
        self.problem = problem_of(self.task)
        self.examples = examples_of(self.task)
        self.broken = broken_of(self.task) if self.task.mode == "repair" else None

    def prompt(self) -> str:
        """Return the specification, the examples, and how to answer."""
        what = "class" if self.problem.kind == "class" else "function"
        examples = "\n".join(example_text(self.problem, case) for case in self.examples)
        if self.broken is None:
            task = f"Write the Python {what} `{self.problem.entry}`.\n\n{self.task.specification}"
        else:
            task = (
                "This Python program has several faults: rules or parts of them may be missing, out of order or "
                "replaced by others. The examples below may hold for it all the same. Find where it differs from the "
                "specification, and repair it.\n\n"
                f"```python\n{self.broken.rstrip()}\n```\n\nSpecification of `{self.problem.entry}`:\n\n"
                f"{self.task.specification}"
            )
        return (
            f"{task}\n\nExamples:\n{examples}\n\n"
            "Use only the standard library. Results are compared strictly: a tuple is no list, and True is not 1. A "
            f"{what} must not change the arguments that it is given, and each call may take {CASE_SECONDS:g} s.\n"
            "Answer in one of two ways. Either end with a message that has the whole program in one block that begins "
            "with ```python and ends with ```. Or use the tools: `test` runs a program on the examples, `run` runs any "
            "program and shows what it prints, and `submit` hands in the whole program. Hidden tests decide, and the "
            "first answer counts."
        )

    @tool
    async def test(self, program: str) -> str:
        """Run a program on the examples, and see where its results differ.

        Args:
            program: the whole Python program, which defines the function or class of the task.
        """
        check_program(program, self.problem.entry)
        calls = [case.calls for case in self.examples]
        results = await run_cases(self.sandbox, program, self.problem.entry, self.problem.kind, calls)
        passed = [result.matches(case.expected) for case, result in zip(self.examples, results, strict=True)]
        lines = [f"{sum(passed)} of {len(passed)} examples are right."]
        for case, result, one in zip(self.examples, results, passed, strict=True):
            if not one:
                lines += self._difference(case.calls, case.expected, result)
        return "\n".join(lines)

    def _difference(self, calls: tuple[object, ...], expected: tuple[object, ...], result: CaseResult) -> list[str]:
        found = result.outcomes if result.outcomes is not None and len(result.outcomes) == len(expected) else None
        if found is None:
            return [f"{call_text(self.problem, calls, 0)}", f"  no result: {result.message}"]
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            if not CaseResult([one]).matches([other]):
                lines = [call_text(self.problem, calls, index), f"  expected: {render(other)}"]
                return [*lines, f"  found:    {render(one)}", *([f"  {result.message}"] if result.message else [])]
        return []

    @tool
    async def run(self, program: str) -> str:
        """Run any Python program as a script, and see what it prints. Nothing is graded.

        Args:
            program: the whole program, for example with the function and `print` calls that try it.
        """
        check_program(program)
        result = await run_script(self.sandbox, program)
        shown = result.text[:SHOWN_OUTPUT]
        if len(result.text) > SHOWN_OUTPUT or result.stdout_truncated:
            shown += f"… (only the first {SHOWN_OUTPUT} characters are shown)"
        errors = result.stderr.decode(errors="replace").strip()[-SHOWN_OUTPUT:]
        return "\n".join([*filter(None, (shown.rstrip("\n"), errors)), f"({result.ending})"])

    @tool(ends=True)
    async def submit(self, program: str) -> Result:
        """Hand in the whole program. This ends the episode.

        Args:
            program: the whole Python program, which defines the function or class of the task.
        """
        check_program(program, self.problem.entry)
        return Result("Submitted.", await self._graded(program), finished=True)

    async def grade(self, answer: str) -> Reward:
        """Grade the program in the final message."""
        program = program_in(answer, self.problem.entry)
        if program is not None and (len(program) > 20_000 or "\0" in program):
            program = None
        return await self._graded(program)

    async def _graded(self, program: str | None) -> Reward:
        hidden = hidden_of(self.task)
        async with self.verifier() as box:
            return await grade_program(box, self.problem, hidden, program)

    @classmethod
    def oracle(cls, task: CodeTask) -> Generator[Call | Answer, StepResult, None]:
        """Submit the reference."""
        yield Call("submit", {"program": task.solution})

    @classmethod
    def exploits(cls, task: CodeTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the programs of `exploits.py`, one policy each, and in a repair the searches of `search.py`."""
        problem, examples = problem_of(task), examples_of(task)
        given = broken_of(task) if task.mode == "repair" else None
        policies = {name: _submit(text) for name, text in exploits.programs(problem, examples, given).items()}
        if given is not None:
            policies["search for a change"] = search(problem, examples, given, most=1)
            policies["search for two changes"] = search(problem, examples, given, most=2)
        return policies

    @classmethod
    def equivalents(cls, task: CodeTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return a third of the programs and messages of `equivalents.py`, one policy each.

        Which third depends on the task, so some tasks together play all.
        """
        problem = problem_of(task)
        written = {name: _submit(text) for name, text in equivalents.programs(problem).items()}
        messages = {name: _end_with(text) for name, text in equivalents.messages(problem).items()}
        ways = {**written, **messages, "after a test and a run": _tried_first(task.solution)}
        return dict(islice(ways.items(), int(task.recipe, 16) % 3, None, 3))


def _submit(program: str) -> Generator[Call | Answer, StepResult, None]:
    yield Call("submit", {"program": program})


def _end_with(message: str) -> Generator[Call | Answer, StepResult, None]:
    yield Answer(message)


def _tried_first(program: str) -> Generator[Call | Answer, StepResult, None]:
    yield Call("test", {"program": program})
    yield Call("run", {"program": program})
    yield Call("submit", {"program": program})
