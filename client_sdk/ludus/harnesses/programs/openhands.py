"""An agent of the OpenHands SDK."""

from __future__ import annotations

import json

from ludus.harnesses.program import PEERS, SERVER, Launch, Program, Setting, Task, Venv


def launch(task: Task, setting: Setting) -> Launch:
    """Return how OpenHands plays an episode."""
    given = {
        "server": SERVER,
        "play_url": task.play_url,
        "openai_base_url": task.openai_base_url,
        "api_key": task.api_key,
        "model": task.model,
        "system": task.system,
        "prompt": task.prompt,
        "own_tools": setting.own_tools,
    }
    variables = {
        "OPENHANDS_SUPPRESS_BANNER": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "ANONYMIZED_TELEMETRY": "false",
        "OTEL_SDK_DISABLED": "true",
    }
    arguments = [setting.executable("python"), str(PEERS / "openhands_agent.py")]
    return Launch(arguments, variables, json.dumps(given) + "\n")


PROGRAM = Program(
    name="openhands", title="OpenHands SDK", version="1.58.2",
    source=Venv(("openhands-sdk==1.58.2", "openhands-tools==1.58.2"), python="3.12"), wire="chat", launch=launch,
)  # fmt: skip
