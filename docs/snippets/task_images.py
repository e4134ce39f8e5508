from ludus.server import Environment, SandboxSettings, Task, tool


class Repair(Task):
    image: str


class Repairs(Environment[Repair]):
    splits = {"train": [Repair(id="a", image="python:3.11-slim"), Repair(id="b", image="python:3.12-slim")]}

    @classmethod
    def sandbox_for(cls, task: Repair) -> SandboxSettings:
        return SandboxSettings(provider="docker", image=task.image)

    def prompt(self) -> str:
        return "Which Python is this?"

    @tool
    async def shell(self, command: str) -> str:
        """Run a shell command."""
        return (await self.sandbox.run(["sh", "-c", command])).text

    def grade(self, answer: str) -> float:
        return float(self.task.image[7:11] in answer)
