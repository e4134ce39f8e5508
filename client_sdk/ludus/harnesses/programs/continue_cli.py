"""Continue's command-line program."""

from __future__ import annotations

import json

from ludus.harnesses.program import NODE, SERVER, Launch, Npm, Program, Setting, Task

PACKAGE = "@continuedev/cli"
OWN_TOOLS = (
    "AskQuestion", "Bash", "CheckBackgroundJob", "Checklist", "Diff", "Edit", "Exit", "Fetch", "List", "MultiEdit",
    "Read", "ReportFailure", "Search", "Skills", "Status", "Subagent", "UploadArtifact", "Write",
)  # fmt: skip


def launch(task: Task, setting: Setting) -> Launch:
    """Return how Continue plays an episode."""
    config = {
        "name": "episode",
        "version": "1.0.0",
        "schema": "v1",
        "models": [
            {
                "name": task.model,
                "provider": "openai",
                "model": task.model,
                "apiBase": task.openai_base_url,
                "apiKey": task.api_key,
                "roles": ["chat"],
                "capabilities": ["tool_use"],
            }
        ],
        "mcpServers": [{"name": SERVER, "type": "streamable-http", "url": task.play_url}],
    }
    arguments = [
        setting.node, setting.module(f"{PACKAGE}/dist/cn.js"), "--print",
        "--config", str(setting.home / "config.yaml"),
    ]  # fmt: skip
    if setting.own_tools:
        arguments.append("--auto")
    else:
        arguments += [word for name in OWN_TOOLS for word in ("--exclude", name)]
    if task.system:
        arguments += ["--rule", task.system]
    variables = {
        "CONTINUE_GLOBAL_DIR": str(setting.home / ".continue"),
        "CONTINUE_METRICS_ENABLED": "0",
        "CONTINUE_CLI_ENABLE_TELEMETRY": "0",
        "CONTINUE_CLI_AUTO_UPDATED": "1",
    }
    return Launch([*arguments, task.prompt], variables, "", {"config.yaml": json.dumps(config)})  # JSON is YAML


PROGRAM = Program(
    name="continue", title="Continue CLI", version="1.5.47", source=Npm({PACKAGE: "1.5.47", **NODE}), wire="chat",
    launch=launch, ignored=("api.continue.dev",),  # its check for updates
)  # fmt: skip
