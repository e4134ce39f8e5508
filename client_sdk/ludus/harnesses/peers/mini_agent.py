"""Play an episode with mini-swe-agent: its commands run by the episode's tool `bash`, or in a shell with `tool`."""

import json
import subprocess
import sys

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class EpisodeShell(LocalEnvironment):
    """Runs the commands in the sandbox of the episode."""

    def __init__(self, submits):
        super().__init__()
        self.submits = submits

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
        """Call a tool of the episode by the command for that, and return its text."""
        done = subprocess.run(["tool", name, json.dumps(arguments)], stdout=subprocess.PIPE, text=True, check=False)
        return done.stdout.removesuffix("\n")


def main():
    """Play the episode on standard input."""
    task = json.loads(sys.stdin.readline())
    model = LitellmModel(
        model_name=f"openai/{task['model']}", cost_tracking="ignore_errors", observation_template="{{ output.output }}"
    )
    shell = EpisodeShell(task["submits"]) if task["remote"] else LocalEnvironment(timeout=600)
    system = task["system"] or f"You solve tasks with bash commands. When you are done, run: echo {DONE}"
    # A reply without a command ends the work, as in the trainer's own loop.
    agent = DefaultAgent(
        model, shell, system_template="{{ system_text }}", instance_template="{{ task }}", step_limit=0,
        max_consecutive_format_errors=1,
    )  # fmt: skip
    agent.run(task["prompt"], system_text=system)


if __name__ == "__main__":
    main()
