from ludus.server import (
    Environment,
    FromTask,
    FunctionTest,
    FunctionTests,
    Limits,
    Private,
    SandboxSettings,
    Task,
    tool,
)


class Problem(Task):
    question: str
    tests: Private[list[FunctionTest]]


class Coding(Environment[Problem]):
    splits = {"train": [Problem(id="add", question="Write answer.py with a function add(a, b).",
                                tests=[FunctionTest([2, 3], 5), FunctionTest([-1, 1], 0, hidden=True)])]}  # fmt: skip
    sandbox_settings = SandboxSettings(limits=Limits(seconds=5, memory=256 * 2**20), warm=4)
    verifier_sandbox = "separate"
    artifacts = ("answer.py",)
    rubric = FunctionTests(function="add", path="answer.py", source=None, tests=FromTask("tests"))

    def prompt(self) -> str:
        return self.task.question

    @tool
    async def shell(self, command: str) -> str:
        """Run a shell command."""
        result = await self.sandbox.run(["sh", "-c", command])
        return f"{result.text}{result.stderr.decode(errors='replace')}({result.ending})"
