"""Play an episode with mini-swe-agent: its commands run by the episode's tool `bash`, or in a shell with `tool`."""

import json
import sys

import requests
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class EpisodeShell(LocalEnvironment):
    """Runs the commands at the agent endpoint of the episode."""

    def __init__(self, play_url, submits):
        super().__init__()
        self.play_url, self.submits = play_url, submits

    def execute(self, action, cwd="", *, timeout=None):
        """Run one command; the command that ends the work submits the answer, where there is one."""
        command = action.get("command", "")
        done = DONE in command
        if not done:
            text = self.call("bash", {"command": command})
        else:
            text = self.call("submit_answer", {"answer": ""}) if self.submits else ""
        output = {"output": DONE if done else text, "returncode": 0, "exception_info": ""}
        self._check_finished(output)
        return output

    def call(self, name, arguments):
        """Call a tool of the episode, and return its text."""
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
        reply = requests.post(self.play_url, json=body, headers=headers, timeout=600)
        reply.raise_for_status()
        result = json.loads(reply.text[reply.text.index("{") : reply.text.rindex("}") + 1])["result"]
        return "\n".join(block.get("text", "") for block in result["content"])


def main():
    """Play the episode on standard input."""
    task = json.loads(sys.stdin.readline())
    model = LitellmModel(
        model_name=f"openai/{task['model']}", cost_tracking="ignore_errors", observation_template="{{ output.output }}"
    )
    shell = EpisodeShell(task["play_url"], task["submits"]) if task["play_url"] else LocalEnvironment(timeout=600)
    system = task["system"] or f"You solve tasks with bash commands. When you are done, run: echo {DONE}"
    # A reply without a command ends the work, as in the trainer's own loop.
    agent = DefaultAgent(
        model, shell, system_template="{{ system_text }}", instance_template="{{ task }}", step_limit=0,
        max_consecutive_format_errors=1,
    )  # fmt: skip
    agent.run(task["prompt"], system_text=system)


if __name__ == "__main__":
    main()
