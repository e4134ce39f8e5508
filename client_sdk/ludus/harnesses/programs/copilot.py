"""GitHub's Copilot CLI, with a model of its own provider and without an account."""

from __future__ import annotations

import json

from ludus.harnesses.program import SERVER, Launch, Npm, Program, Setting, Task

PACKAGE = "@github/copilot-linux-x64"
SESSION = "00000000-0000-4000-8000-000000000000"
"""The session's id, which is in the prompt: with a random one, the prompts of a group would not be the same."""
OWN_TOOLS = (
    "bash", "read_bash", "write_bash", "stop_bash", "list_bash", "view", "create", "edit",
    "fetch_copilot_cli_documentation", "skill", "sql", "session_store_sql", "read_agent", "list_agents", "write_agent",
    "grep", "glob", "task", "report_intent", "web_fetch", "apply_patch", "update_todo",
)  # fmt: skip


def launch(task: Task, setting: Setting) -> Launch:
    """Return how Copilot plays an episode."""
    servers = {"mcpServers": {SERVER: {"type": "http", "url": task.play_url, "tools": ["*"], "timeout": 600_000}}}
    arguments = [
        setting.module(f"{PACKAGE}/copilot"), "--output-format", "json", "--allow-all-tools", "--allow-all-paths",
        "--disable-builtin-mcps", "--disable-client-telemetry", "--no-auto-update", "--no-ask-user",
        "--additional-mcp-config", f"@{setting.home / 'mcp.json'}", "--log-level", "none", "--session-id", SESSION,
    ]  # fmt: skip
    if not setting.own_tools:
        arguments += ["--excluded-tools", *OWN_TOOLS]
    files = {"mcp.json": json.dumps(servers)}
    variables = {
        "COPILOT_OFFLINE": "true",
        "COPILOT_MODEL": task.model,
        "COPILOT_PROVIDER_BASE_URL": task.openai_base_url,
        "COPILOT_PROVIDER_API_KEY": task.api_key,
        "COPILOT_PROVIDER_WIRE_API": "completions",
        "COPILOT_AUTO_UPDATE": "false",
    }
    return Launch(arguments, variables, task.whole, files)


PROGRAM = Program(
    name="copilot", title="GitHub Copilot CLI", version="1.0.102", source=Npm({PACKAGE: "1.0.102"}), wire="chat",
    launch=launch,
)  # fmt: skip
