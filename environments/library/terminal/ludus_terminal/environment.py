"""Reach a goal with bash in a sandbox; the final files are graded."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

from ludus.protocol import Answer, Call, Component, EpisodeLimits, Reward, StepResult
from ludus.protocol.errors import AuthoringError
from ludus.sandbox import Limits, SandboxFileError, SandboxSettings
from ludus.server import Difficulty, InfrastructureFailed, Private, ProceduralEnvironment, Task, TaskDraw, tool
from ludus.server.authoring.partition import digest
from ludus.server.authoring.workspace import ADJECTIVES, HOME, NOUNS, VARIABLES, pack, read_tree, run_command
from ludus_terminal.backward import changes, describe, problem_of, write_goal
from ludus_terminal.exploits import exploits
from ludus_terminal.grading import Outcome, judge, run_cases
from ludus_terminal.problem import Problem, State
from ludus_terminal.templates import by_level, template
from ludus_terminal.world import World

MAX_STEPS: Final = 40
PROGRAMS: Final = ("bash", "git", "awk", "sed", "grep", "find", "tar", "gzip", "diff")
"""What the machine must have, besides the core utilities."""


class TerminalTask(Task):
    """A goal in a workspace."""

    area: str
    """What it is about, such as `logs`."""
    template: str
    """The kind of problem. It determines the split."""
    difficulty: Difficulty
    project: str
    """The name of the working folder."""
    draw: Private[str]
    """What the files and the goal are drawn from."""
    goal: Private[str] = ""
    """A goal of `backward` that replaces the drawn one; empty for none."""


def make_problem(task: TerminalTask) -> Problem:
    """Return the files, the goal and the conditions of a task."""
    rng = random.Random(digest(f"{task.project}:{task.template}:{task.difficulty}:{task.draw}"))
    drawn = template(task.template).build(World(task.project, task.difficulty, rng))
    return problem_of(drawn, task.goal) if task.goal else drawn


class Terminal(ProceduralEnvironment[TerminalTask]):
    """Reach a goal with bash in a sandbox: files, text, logs, git, builds, data, archives and scripts."""

    version = "0.2.0"
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=MAX_STEPS)
    forkable = True
    sandbox_settings = SandboxSettings(
        limits=Limits(
            seconds=10, cpu_seconds=10, memory=256 * 2**20, disk=32 * 2**20, file_size=16 * 2**20, output=256 * 2**10,
            spawned=0,
        ),
        warm=2,
    )  # fmt: skip
    verifier_sandbox = "separate"

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> TerminalTask:
        """Draw a workspace; the templates of each difficulty take turns."""
        kinds = by_level(draw.difficulty, draw.split)
        kind = kinds[draw.place % len(kinds)]
        secret = "" if draw.split == "train" else f"{draw.secret}:"
        rng = random.Random(digest(f"terminal:{secret}{draw.index}:{draw.difficulty}:{kind.name}"))
        project, seed = f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}", f"{rng.getrandbits(64):016x}"
        return TerminalTask(
            id=draw.id, area=kind.area, template=kind.name, difficulty=draw.difficulty, project=project, draw=seed
        )

    @classmethod
    def startup(cls) -> None:
        """Check that the programs of the tasks are installed.

        Raises:
            AuthoringError: one is missing.
        """
        if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
            raise AuthoringError(
                f"the environment `terminal` needs {', '.join(missing)} on the server's machine, which its sandboxes "
                "show: install the package of that name (apt-get install git)"
            )

    async def setup(self) -> None:
        """Put the files of the task into the sandbox."""
        self._problem = await asyncio.to_thread(make_problem, self.task)
        result = await self.sandbox.run(["tar", "-xpf", "-"], stdin=pack(self._problem.tree, self.task.project))
        if not result.ok:
            raise InfrastructureFailed(f"the files of the task cannot be unpacked: {result.ending} {result.stderr!r}")

    def prompt(self) -> str:
        """Return the folder, the goal and the rules."""
        return (
            f"You work in a Linux shell. The working folder is {HOME}/{self.task.project}; paths below are relative to "
            f"it.\n\n{self._problem.text}\n\n"
            "Call `bash` to run a command line. When the goal is reached, reply with a short message, without a tool "
            f"call: the files are graded then, not the message. You have {MAX_STEPS} calls. Leave all files alone that "
            "the goal does not ask you to change: a damaged file costs all credit. New files elsewhere do no harm. "
            "There is no network."
        )

    @tool
    async def bash(self, command: str) -> str:
        """Run a command line in bash, and return its output and exit code.

        Each call is a new shell that starts in the working folder: files stay, but the current folder, variables,
        functions and background processes do not carry over, and /tmp may be emptied. A command has 10 seconds and no
        input. At most 8,000 characters of output are shown, the beginning and the end. Bash, coreutils, grep, sed, awk,
        find, diff, tar, gzip, git and python3 are there.

        Args:
            command: the command line, which may have several lines.
        """
        return await run_command(self.sandbox, self.task.project, command)

    async def grade(self, answer: str) -> Reward:
        """Compare the final files with the goal; the message does not count."""
        problem = self._problem
        try:
            tree = await read_tree(self.sandbox, self.task.project)
        except SandboxFileError as error:
            return _reward(
                Outcome({goal.name: False for goal in problem.goals}, [f"unreadable: {error.message[:200]}"])
            )
        state = State(tree)
        outcome = await asyncio.to_thread(judge, problem, state)
        if any(goal.cases for goal in problem.goals) and not outcome.damage:
            async with self.verifier() as box:
                state.passed = await run_cases(box, problem, tree, VARIABLES)
            outcome = await asyncio.to_thread(judge, problem, state)
        return _reward(outcome)

    @classmethod
    def oracle(cls, task: TerminalTask) -> Generator[Call | Answer, StepResult, None]:
        """Run the commands that reach the goal."""
        for command in make_problem(task).commands:
            yield Call("bash", {"command": command})
        yield Answer("Done.")

    async def final_state(self) -> dict[str, Any] | None:
        """Return the files that differ from those at the beginning."""
        try:
            tree = await read_tree(self.sandbox, self.task.project)
        except SandboxFileError:
            return None
        return changes(self._problem.tree, tree)

    @classmethod
    def describe_state(cls, task: TerminalTask, state: dict[str, Any]) -> str:
        """Return what each of these files must be.

        Raises:
            ValueError: they cannot be put into a few words.
        """
        return describe(state)

    @classmethod
    def task_from_state(
        cls, id: str, task: TerminalTask, state: dict[str, Any], calls: Sequence[Call], instruction: str
    ) -> TerminalTask:
        """Return the task to bring about a state in the folder of another task."""
        commands = [str(call.arguments.get("command", "")) for call in calls]
        goal = write_goal(instruction, commands, state)
        return task.model_copy(update={"id": id, "goal": goal})

    @classmethod
    def exploits(cls, task: TerminalTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `exploits.py`."""
        return exploits(make_problem(task), task.project)

    @classmethod
    def equivalents(cls, task: TerminalTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return other sequences of commands that reach the goal."""
        commands = make_problem(task).commands
        together = "\n".join(f"(\n{command}\n)" for command in commands)
        script = f"cat > /tmp/steps.sh <<'END_OF_STEPS'\n{together}\nEND_OF_STEPS\nbash /tmp/steps.sh"
        python = "import subprocess, sys\nsubprocess.run(['bash', '-c', sys.stdin.read()])"

        def run(*lines: str, message: str = "Done.") -> Generator[Call | Answer, StepResult, None]:
            for line in lines:
                yield Call("bash", {"command": line})
            yield Answer(message)

        return {
            "all in one call": run(together),
            "a script in another folder": run(script),
            "from Python": run(f"python3 -c \"{python}\" <<'END_OF_STEPS'\n{together}\nEND_OF_STEPS"),
            "a look around first": run("pwd; ls -laR . | head -50", "git log --oneline | head", *commands, "ls -la"),
            "another message": run(*commands, message="All files are as you asked.\n\nAnswer: done"),
        }


def _reward(outcome: Outcome) -> Reward:
    """Return the reward: 0.4 for the share of goals, and 0.6 for all of them; nothing if anything was damaged."""
    intact = not outcome.damage
    share = sum(outcome.met.values()) / len(outcome.met) if intact else 0.0
    complete = float(share == 1.0)
    evidence = "; ".join(f"{'met' if met else 'not met'}: {name}" for name, met in outcome.met.items())
    damage = f"damaged: {', '.join(outcome.damage[:5])}" if outcome.damage else None
    return Reward.of(
        0.4 * share + 0.6 * complete,
        {
            "goals": Component(value=share, weight=0.4, evidence=evidence[:2000]),
            "complete": Component(value=complete, weight=0.6),
            "intact": Component(value=float(intact), weight=0.0, evidence=damage and damage[:500]),
        },
    )
