from ludus.server import Environment, Limits, SandboxSettings, Task, tool


class Packages(Environment[Task]):
    """Fetch packages, and nothing else."""

    splits = {"train": [Task(id="fetch")]}
    sandbox_settings = SandboxSettings(network=("pypi.org", "*.pythonhosted.org"), limits=Limits(traffic=64 * 2**20))

    def prompt(self) -> str:
        return "Fetch the newest release of six."

    @tool
    async def shell(self, command: str) -> str:
        """Run a shell command."""
        result = await self.sandbox.run(["sh", "-c", command])
        return "\n".join([result.text, *map(str, result.refused)])

    def grade(self, answer: str) -> float:
        return float(answer.startswith("1."))
