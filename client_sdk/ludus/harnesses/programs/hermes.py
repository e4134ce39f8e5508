"""Nous Research's Hermes Agent, by the query of its chat."""

from __future__ import annotations

import json

from ludus.harnesses.program import SERVER, Launch, Program, Setting, Task, Venv


def launch(task: Task, setting: Setting) -> Launch:
    """Return how Hermes plays an episode."""
    config = {
        "model": {
            "default": task.model,
            "provider": "custom",
            "base_url": task.openai_base_url,
            "api_key": task.api_key,
            "context_length": 1_000_000,  # else it asks the addresses of other servers for it
        },
        "mcp_servers": {
            SERVER: {
                "url": task.play_url,
                "timeout": 600,
                "connect_timeout": 60,
                "tools": {"prompts": False, "resources": False},
            }
        },
        "mcp_discovery_timeout": 60,  # seconds; by default it asks the model before it has the episode's tools
        "memory": {"memory_enabled": False, "user_profile_enabled": False},
    }
    arguments = [setting.executable("python"), "-m", "hermes_cli.main", "chat", "--quiet", "--yolo", "--ignore-rules"]
    if not setting.own_tools:
        arguments += ["--toolsets", SERVER]
    variables = {
        "HERMES_HOME": str(setting.home / ".hermes"),
        "OPENAI_API_KEY": task.api_key,
        "OPENAI_BASE_URL": task.openai_base_url,
    }
    return Launch(
        [*arguments, "--query", task.whole], variables, "", {".hermes/config.yaml": json.dumps(config)}
    )  # JSON is YAML


PROGRAM = Program(
    name="hermes", title="Hermes Agent", version="0.19.0", source=Venv(("hermes-agent==0.19.0", "mcp<2")), wire="chat",
    launch=launch, ignored=("pypi.org", "github.com"),  # its checks for updates
)  # fmt: skip
