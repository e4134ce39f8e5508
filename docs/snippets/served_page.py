from ludus.sandbox import SandboxPortClosed
from ludus.server import Environment, SandboxSettings, Task, tool


class Site(Environment[Task]):
    """The agent writes a web server; the grade is what it answers."""

    splits = {"train": [Task(id="hello")]}
    sandbox_settings = SandboxSettings(loopback=True)

    def prompt(self) -> str:
        return "Write app.py: an HTTP server on port 8000 that answers GET /hello with the text `hello`."

    @tool
    async def write(self, path: str, text: str) -> str:
        """Write a file."""
        await self.sandbox.write(path, text.encode())
        return "written"

    async def grade(self, answer: str) -> float:
        async with await self.sandbox.spawn(["python3", "app.py"]):
            try:
                async with await self.sandbox.expose(8000, seconds=5) as port:
                    response = await port.get("/hello")
            except SandboxPortClosed:  # what the agent wrote does not answer, so the grade is 0, and not unscored
                return 0.0
        return float((response.status, response.text) == (200, "hello"))
