"""mini-swe-agent as a harness: its commands run in the sandbox of the episode, by the episode's tool `bash`."""

import json
import os
import sys
from typing import Any

import requests
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class EpisodeShell(LocalEnvironment):
    """Runs the commands of mini-swe-agent at the agent endpoint of the episode."""

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run one command; the command that ends the work submits the answer instead."""
        command = action.get("command", "")
        done = DONE in command
        text = call("submit_answer", {"answer": ""}) if done else call("bash", {"command": command})
        output = {"output": DONE if done else text, "returncode": 0, "exception_info": ""}
        self._check_finished(output)
        return output


def call(name: str, arguments: dict[str, str]) -> str:
    """Call a tool of the episode, and return its text."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    reply = requests.post(os.environ["LUDUS_PLAY_URL"], json=body, headers=headers, timeout=120)
    reply.raise_for_status()
    result = json.loads(reply.text[reply.text.index("{") : reply.text.rindex("}") + 1])["result"]
    return "\n".join(block.get("text", "") for block in result["content"])


def main() -> None:
    """Play the episode on standard input."""
    task = json.loads(sys.stdin.readline())
    model = LitellmModel(
        model_name=f"openai/{task['model']}", cost_tracking="ignore_errors", observation_template="{{ output.output }}"
    )
    system = f"You solve tasks with bash commands. When you are done, run: echo {DONE}"
    if task["messages"][0]["role"] == "system":
        system = task["messages"].pop(0)["content"]
    # A reply without a command ends the work, as in the trainer's own loop.
    agent = DefaultAgent(
        model, EpisodeShell(), system_template="{{ system_text }}", instance_template="{{ task }}", step_limit=0,
        max_consecutive_format_errors=1,
    )  # fmt: skip
    agent.run("\n\n".join(message["content"] for message in task["messages"]), system_text=system)


if __name__ == "__main__":
    main()
