"""Pi, by its print mode."""

from __future__ import annotations

import json

from ludus.harnesses.program import NODE, SERVER, Launch, Npm, Program, Setting, Task

PACKAGE = "@earendil-works/pi-coding-agent"


def launch(task: Task, setting: Setting) -> Launch:
    """Return how Pi plays an episode."""
    models = {
        "providers": {
            "policy": {
                "baseUrl": task.openai_base_url,
                "api": "openai-completions",
                "apiKey": "$OPENAI_API_KEY",
                "models": [{"id": task.model}],
            }
        }
    }
    servers = {"mcpServers": {SERVER: {"url": task.play_url, "exposure": "direct"}}, "autoEnableCodemode": False}
    arguments = [
        setting.node, setting.module(f"{PACKAGE}/dist/bundle/cli.js"), "--print", "--mode", "text", "--no-session",
        "--model", f"policy/{task.model}", "--no-extensions", "--extension", "builtin:mcp",
        "--no-skills", "--no-context-files",
    ]  # fmt: skip
    if not setting.own_tools:
        arguments.append("--no-builtin-tools")
    if task.system:
        arguments += ["--append-system-prompt", task.system]
    variables = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1", "OPENAI_API_KEY": task.api_key}
    files = {".pi/agent/models.json": json.dumps(models), ".pi/agent/mcp.json": json.dumps(servers)}
    return Launch(arguments, variables, task.prompt, files)


PROGRAM = Program(
    name="pi", title="Pi", version="1.6.0", source=Npm({PACKAGE: "1.6.0", **NODE}), wire="chat", launch=launch
)
