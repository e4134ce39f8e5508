from ludus.server import Environment, Limits, SandboxSettings, Task, tool


class Shell(Environment[Task]):
    """A shell that stays open between calls."""

    splits = {"train": [Task(id="count")]}
    sandbox_settings = SandboxSettings(limits=Limits(spawned_seconds=600, spawned_cpu_seconds=60))

    async def setup(self) -> None:
        self.terminal = await self.sandbox.open_terminal(["bash"], rows=24, columns=80)

    def prompt(self) -> str:
        return "Put the number of files in /usr/bin into the file `count`."

    @tool
    async def keys(self, text: str) -> str:
        """Type into the terminal, and see its screen; "\\x03" is Ctrl-C."""
        await self.terminal.write(text)
        return (await self.terminal.screen(quiet=0.2)).text

    async def grade(self, answer: str) -> float:
        wanted = await self.sandbox.run(["sh", "-c", "ls /usr/bin | wc -l"])
        return float((await self.sandbox.read("count")).strip() == wanted.stdout.strip())
