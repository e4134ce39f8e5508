"""ORS environments for tests, for whichever of ors-sdk and openreward is installed."""

import os
import time

from pydantic import BaseModel

try:
    from ors import Environment, ImageBlock, ListToolsOutput, Server, Split, TextBlock, ToolOutput, ToolSpec, tool
except ImportError:
    from openreward.environments import (
        Environment, ImageBlock, ListToolsOutput, Server, Split, TextBlock, ToolOutput, ToolSpec, tool,
    )  # fmt: skip


class Deed(BaseModel):
    what: str


class Faults(Environment):
    """Does what the tool call says, also what it must not do."""

    def __init__(self, task_spec={}, secrets={}):
        super().__init__(task_spec, secrets)
        self.known = dict(secrets)
        self.steps = 0

    @classmethod
    def list_splits(cls):
        return [Split(name="train", type="train"), "hard"]

    @classmethod
    def list_tasks(cls, split):
        return [{"id": number, "answer": "s3cret"} for number in range(3 if split == "train" else 2)]

    def setup(self):
        if self.task_spec["id"] == 2:
            raise RuntimeError("this task cannot be set up")

    def get_prompt(self):
        return [TextBlock(text=f"task {self.task_spec['id']}"), ImageBlock(data="iVBORw0KGgo=", mimeType="image/png")]

    def list_task_tools(self):
        tools = [ToolSpec(name="extra", description="A tool of one task.", input_schema=None)]
        return ListToolsOutput(tools=tools if self.task_spec["id"] == 1 else [])

    @tool(shared=False)
    def extra(self) -> ToolOutput:
        """A tool of one task."""
        return ToolOutput(blocks=[TextBlock(text="extra")], reward=0.125)

    @tool
    def do(self, deed: Deed) -> ToolOutput:
        """Do something."""
        self.steps += 1
        what = deed.what
        if what == "raise":
            raise RuntimeError("this step is broken\nin two lines")
        if what == "hang":
            time.sleep(3600)
        if what == "exit":
            os._exit(3)
        if what == "print":
            print("printed on standard output", flush=True)
        if what == "long":
            return ToolOutput(blocks=[TextBlock(text="word  " * 3000)])
        if what == "secret":
            return ToolOutput(blocks=[TextBlock(text=self.known.get("ORS_TEST_SECRET", "none"))])
        return ToolOutput(blocks=[TextBlock(text=f"step {self.steps}")], reward=0.5, finished=what == "end")


class Other(Faults):
    """Another one."""


class Unfinished(Environment):
    def get_prompt(self):
        return []


not_an_environment = 7
server = Server([Faults, Other])
