from collections.abc import Sequence
from typing import Any

from ludus.environments.computer import office_settings, open_office
from ludus.sandbox import SandboxFileError
from ludus.server import Environment, Task


class Letter(Environment[Task]):
    """A text document in LibreOffice, which runs in the sandbox."""

    splits = {"train": [Task(id="letter")]}
    sandbox_settings = office_settings()

    async def setup(self) -> None:
        self.office = await open_office(self.sandbox)

    def task_tools(self) -> Sequence[Any]:
        return self.office.tools

    def prompt(self) -> str:
        return "Create letter.odt with the text `Dear Ada`, save it, and export it as letter.txt."

    async def grade(self, answer: str) -> float:
        try:
            return float(b"Dear Ada" in await self.sandbox.read("documents/letter.txt"))
        except SandboxFileError:  # the policy has not exported it
            return 0.0
