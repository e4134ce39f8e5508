from ludus.server import Environment, Private, Task, tool
from ludus.server.sandbox import Limits, SandboxSettings


class Problem(Task):
    question: str
    tests: Private[str]


class Coding(Environment[Problem]):
    splits = {"train": [Problem(id="add", question="Write answer.py with a function add(a, b).",
                                tests="from answer import add\nassert add(2, 3) == 5\n")]}  # fmt: skip
    sandbox_settings = SandboxSettings(limits=Limits(seconds=5, memory=256 * 2**20), warm=4)
    verifier_sandbox = "separate"
    artifacts = ("answer.py",)

    def prompt(self) -> str:
        return self.task.question

    @tool
    async def shell(self, command: str) -> str:
        """Run a shell command."""
        result = await self.sandbox.run(["sh", "-c", command])
        return f"{result.text}{result.stderr.decode(errors='replace')}({result.ending})"

    async def grade(self, answer: str) -> float:
        async with self.verifier() as box:
            await box.write("tests.py", self.task.tests.encode())
            return float((await box.run(["python3", "tests.py"])).ok)
