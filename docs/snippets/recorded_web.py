from ludus.server import Cassette, Environment, SandboxSettings, Task, tool


class Web(Environment[Task]):
    """A shell whose requests to one site are answered from a file."""

    splits = {"train": [Task(id="read")]}
    sandbox_settings = SandboxSettings(network=("127.0.0.1:8010",), cassette=Cassette(path="web.cassette"))

    def prompt(self) -> str:
        return "What does http://127.0.0.1:8010/ say?"

    @tool
    async def shell(self, command: str) -> str:
        """Run a shell command."""
        return (await self.sandbox.run(["sh", "-c", command])).text

    def grade(self, answer: str) -> float:
        return float("hello" in answer)
