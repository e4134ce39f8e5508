"""mini-swe-agent, whose one tool is a shell: the episode's `bash`, or a shell in which the bridge is."""

from __future__ import annotations

import json

from ludus.harnesses.bridge import Bridge, instructions
from ludus.harnesses.program import PEERS, Launch, Program, Setting, Task, Venv


def launch(task: Task, setting: Setting) -> Launch:
    """Return how mini-swe-agent plays an episode."""
    tools = Bridge(task.play_url).tools()
    remote = any(tool["name"] == "bash" for tool in tools)
    given = {
        "openai_base_url": task.openai_base_url,
        "api_key": task.api_key,
        "model": task.model,
        "system": task.system,
        "prompt": task.prompt if remote else f"{task.prompt}\n\n{instructions(tools)}",
        "remote": remote,
        "submits": any(tool["name"] == "submit_answer" for tool in tools),
    }
    variables = {
        "OPENAI_BASE_URL": task.openai_base_url,
        "OPENAI_API_KEY": task.api_key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_GLOBAL_CONFIG_DIR": str(setting.home / ".mini"),
    }
    arguments = [setting.executable("python"), str(PEERS / "mini_agent.py")]
    return Launch(arguments, variables, json.dumps(given) + "\n")


PROGRAM = Program(
    name="mini-swe-agent", title="mini-swe-agent", version="2.4.6",
    source=Venv(("mini-swe-agent==2.4.6", "litellm==1.106.2")), wire="chat", launch=launch,
    bridge=True,
)  # fmt: skip
