import sysconfig
from collections.abc import Sequence
from typing import Any

from ludus.server import Environment, SandboxSettings, Task, connect_mcp

SERVER = b'''
from pathlib import Path
from mcp.server import MCPServer

server = MCPServer("notes")

@server.tool()
def add_note(text: str) -> str:
    """Add a note."""
    with Path("notes.txt").open("a") as file:
        file.write(text + "\\n")
    return "added"

server.run("stdio")
'''


class Notes(Environment[Task]):
    """The tools of an MCP server that runs in the sandbox."""

    splits = {"train": [Task(id="milk")]}
    sandbox_settings = SandboxSettings(
        readonly=((sysconfig.get_path("purelib"), "/packages"),), env=(("PYTHONPATH", "/packages"),)
    )

    async def setup(self) -> None:
        await self.sandbox.write("server.py", SERVER)
        self.notes = await connect_mcp(self.sandbox, ["python3", "server.py"])

    def task_tools(self) -> Sequence[Any]:
        return self.notes.tools

    def prompt(self) -> str:
        return "Add a note that says `buy milk`."

    async def grade(self, answer: str) -> float:
        return float((await self.sandbox.run(["cat", "notes.txt"])).text == "buy milk\n")
