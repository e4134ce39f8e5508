"""Repair or extend a small Python repository, from an issue as a user writes it; hidden tests decide."""

from __future__ import annotations

import asyncio
import posixpath
import shutil
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final

from ludus.environments.swe.equivalents import equivalents
from ludus.environments.swe.exploits import exploits
from ludus.environments.swe.grading import expected_of, grade_tree, reward_of
from ludus.environments.swe.problem import Problem, make_problem
from ludus.environments.swe.tasks import SweTask, make_task
from ludus.protocol import Answer, Call, EpisodeLimits, Reward, StepResult
from ludus.protocol.errors import AuthoringError
from ludus.sandbox import Limits, SandboxFileError, SandboxSettings
from ludus.server import Difficulty, InfrastructureFailed, ProceduralEnvironment, Result, TaskDraw, ToolError, tool
from ludus.server.authoring.workspace import HOME, LONGEST_OUTPUT, VARIABLES, pack, read_tree, run_command, shown_result
from ludus.server.rewards.isolated import hide_package

MAX_STEPS: Final = 50
LONGEST_FILE: Final = 200_000
"""The most characters of a file that the tools edit or write."""
LINES_SHOWN: Final = 200
"""The most lines that `view` shows."""
PROGRAMS: Final = ("bash", "git", "grep", "find", "tar")


class Swe(ProceduralEnvironment[SweTask]):
    """Repair or extend a small Python repository, from an issue as a user writes it; hidden tests decide."""

    version = "0.2.0"
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=MAX_STEPS)
    forkable = True
    sandbox_settings = SandboxSettings(
        limits=Limits(
            seconds=20, cpu_seconds=20, memory=512 * 2**20, processes=48, disk=32 * 2**20, file_size=16 * 2**20,
            output=256 * 2**10, spawned=0,
        ),
        env=(("PYTHONHASHSEED", "0"),),
        readonly=hide_package(Path(__file__).resolve().parent),
        warm=2,
    )  # fmt: skip
    verifier_sandbox = "separate"

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> SweTask:
        """Draw a repository with faults."""
        return make_task(draw)

    @classmethod
    def startup(cls) -> None:
        """Check that the programs of the tasks are installed.

        Raises:
            AuthoringError: one is missing.
        """
        if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
            raise AuthoringError(
                f"the environment `swe` needs {', '.join(missing)} on the server's machine, which its sandboxes show: "
                "install the package of that name (apt-get install git)"
            )

    async def setup(self) -> None:
        """Put the repository of the task into the sandbox."""
        self._problem = await asyncio.to_thread(make_problem, self.task)
        archive = await asyncio.to_thread(_archive, self._problem, self.task.project)
        result = await self.sandbox.run(["tar", "-xpf", "-"], stdin=archive)
        if not result.ok:
            raise InfrastructureFailed(f"the files of the task cannot be unpacked: {result.ending} {result.stderr!r}")

    def prompt(self) -> str:
        """Return the folder, the issue and the rules."""
        problem = self._problem
        return (
            f"You maintain a Python package, `{problem.package}`. Its git repository is in {HOME}/{self.task.project}, "
            f"and the package is in the folder `{problem.root}`. Paths are relative to the repository.\n\n"
            f"{problem.issue}\n\n"
            "Find the cause in the package and change its code, so that what is reported works in all cases, not only "
            "in the example, and everything else works as before. The README and the docstrings say how it has to "
            "behave.\n\n"
            f"* `{problem.test_command}` runs the tests of the repository. They do not cover everything.\n"
            f"* Call `submit` when you are done. You have {MAX_STEPS} calls in all.\n"
            f"* Hidden tests then import `{problem.package}` and decide. They see only the Python files in "
            f"`{problem.root}`, not tests, settings or other files. The package may import the standard library only, "
            "and must not lose modules, classes, functions or parameters that it has."
        )

    @tool
    async def bash(self, command: str) -> str:
        """Run a command line in bash, and return its output and exit code.

        Each call is a new shell that starts in the repository: files stay, but the current folder, variables and
        background processes do not. A command has 20 seconds, no input and no network. At most 8,000 characters of
        output are shown, the beginning and the end.

        Args:
            command: the command line, which may have several lines.
        """
        return await run_command(self.sandbox, self.task.project, command)

    @tool
    async def view(self, path: str, first: int = 1) -> str:
        """Show a file with line numbers, 200 lines at most, or the entries of a folder.

        Args:
            path: the file or folder, relative to the repository; "." is the repository itself.
            first: the number of the first line to show.
        """
        place = self._place(path)
        if not 1 <= first <= 10**6:
            raise ToolError("`first` is the number of a line: at least 1.")
        try:
            lines = (await self._read(place)).split("\n")
        except SandboxFileError as error:
            try:
                entries = await self.sandbox.list(place)
            except SandboxFileError:
                raise ToolError(f"There is no file or folder {path[:200]!r} to show ({_reason(error)}).") from None
            names = [f"{entry.name}/" if entry.kind == "directory" else entry.name for entry in entries]
            return "\n".join(names)[:LONGEST_OUTPUT] or "(The folder is empty.)"
        if lines[-1] == "":
            lines.pop()
        if first > max(1, len(lines)):
            raise ToolError(f"{path[:200]!r} has {len(lines)} lines only.")
        return _numbered(lines, first)

    @tool
    async def edit(self, path: str, old: str, new: str) -> str:
        """Replace a piece of a file. The piece must be in the file exactly once.

        Args:
            path: the file, relative to the repository.
            old: the piece, with its exact spaces and line breaks.
            new: what replaces it.
        """
        place = self._place(path)
        if not old:
            raise ToolError("`old` is empty. Give the piece of the file that is to be replaced, or call `write`.")
        try:
            content = await self._read(place)
        except SandboxFileError as error:
            raise ToolError(f"There is no file {path[:200]!r} to edit ({_reason(error)}).") from None
        if (count := content.count(old)) != 1:
            raise ToolError(
                f"`old` is in {path[:200]!r} {count} times, not once. "
                + ("Add lines around it." if count else "Compare it with `view`: spaces and line breaks count.")
            )
        await self._write(place, content.replace(old, new))
        return f"Replaced {old.count(chr(10)) + 1} lines by {new.count(chr(10)) + 1 if new else 0}."

    @tool
    async def write(self, path: str, content: str) -> str:
        """Write a file, and make the folders above it. An existing file is replaced.

        Args:
            path: the file, relative to the repository.
            content: all of its text.
        """
        await self._write(self._place(path), content)
        return f"Wrote {len(content):,} characters."

    @tool
    async def search(self, pattern: str, path: str = ".") -> str:
        """Search the files for a pattern, and show the matching lines with their paths and numbers.

        Args:
            pattern: an extended regular expression, as for `grep -E`.
            path: the file or folder to search, relative to the repository.
        """
        place = self._place(path)
        if not pattern or len(pattern) > 1000 or "\n" in pattern:
            raise ToolError("`pattern` must be one line of 1 to 1,000 characters.")
        _checked_text(pattern, "pattern")
        inner = posixpath.relpath(place, self.task.project)
        argv = ["grep", "-rnIE", "--exclude-dir=.git", "--exclude-dir=__pycache__", "-e", pattern, "--", inner]
        try:
            result = await self.sandbox.run(argv, cwd=self.task.project, env=VARIABLES)
        except SandboxFileError as error:
            raise ToolError(f"The repository cannot be searched ({_reason(error)}).") from None
        if result.exit_code == 1 and not result.stdout:
            return "(No line matches.)"
        if result.exit_code == 2:
            reason = result.stderr.decode("utf-8", "replace").strip()[:300]
            raise ToolError(f"The search failed: {reason}")
        return shown_result(result).removesuffix("(exit code 0)").rstrip("\n")

    @tool(ends=True)
    async def submit(self, summary: str) -> Result:
        """Hand in the repository as it is. This ends the episode.

        Args:
            summary: what you have changed, in a sentence. It is not graded.
        """
        return Result("Submitted.", await self._graded(), finished=True)

    async def grade(self, answer: str) -> Reward:
        """Grade the repository; the message does not count."""
        return await self._graded()

    async def _graded(self) -> Reward:
        problem = self._problem
        try:
            tree = await read_tree(self.sandbox, self.task.project)
        except SandboxFileError:
            expected = await asyncio.to_thread(expected_of, problem)
            return reward_of(problem, expected, [False] * len(problem.checks), None)
        async with self.verifier() as box:
            return await grade_tree(box, problem, tree)

    def _place(self, path: str) -> str:
        """Return a path relative to the work directory, if it is in the repository.

        Raises:
            ToolError: it is not, or it is no path.
        """
        if not path.strip() or len(path) > 1000 or "\0" in path:
            raise ToolError("`path` must be the path of a file in the repository, such as README.md.")
        _checked_text(path, "path")
        root = f"{HOME}/{self.task.project}"
        found = posixpath.normpath(posixpath.join(root, path))
        if found != root and not found.startswith(f"{root}/"):
            raise ToolError(f"{path[:200]!r} is outside the repository, {root}. Use `bash` for other files.")
        return posixpath.relpath(found, HOME)

    async def _read(self, place: str) -> str:
        data = await self.sandbox.read(place, limit=4 * LONGEST_FILE)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ToolError("The file is no UTF-8 text. Use `bash` for it.") from None

    async def _write(self, place: str, content: str) -> None:
        if len(content) > LONGEST_FILE:
            raise ToolError(f"The file would have {len(content):,} characters, more than {LONGEST_FILE:,}.")
        _checked_text(content, "content")
        try:
            await self.sandbox.write(place, content.encode())
        except SandboxFileError as error:
            raise ToolError(f"The file cannot be written ({_reason(error)}).") from None

    @classmethod
    def oracle(cls, task: SweTask) -> Generator[Call | Answer, StepResult, None]:
        """Undo the faults, and submit."""
        for path, wrong, right in make_problem(task).repairs:
            yield Call("edit", {"path": path, "old": wrong, "new": right})
        yield Call("submit", {"summary": "Repaired."})

    @classmethod
    def exploits(cls, task: SweTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `exploits.py`."""
        return exploits(make_problem(task), task.project, task.template)

    @classmethod
    def equivalents(cls, task: SweTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `equivalents.py`."""
        return equivalents(make_problem(task))


def _numbered(lines: list[str], first: int) -> str:
    """Return lines with their numbers, as many as may be shown, and how many follow."""
    shown: list[str] = []
    size = 0
    for number, line in enumerate(lines[first - 1 : first - 1 + LINES_SHOWN], first):
        text = f"{number:>4}  {line[:500]}"
        size += len(text) + 1
        if size > LONGEST_OUTPUT:
            break
        shown.append(text)
    rest = len(lines) - (first - 1 + len(shown))
    return "\n".join([*shown, *([f"({rest} more lines)"] if rest else [])]) or "(The file is empty.)"


def _archive(problem: Problem, project: str) -> bytes:
    return pack(problem.tree(), project)


def _checked_text(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ToolError(f"`{name}` has a lone surrogate, which is no character.") from None


def _reason(error: SandboxFileError) -> str:
    return error.message[:200]
