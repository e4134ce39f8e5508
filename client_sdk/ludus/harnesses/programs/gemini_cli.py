"""Google's Gemini CLI, by its prompt mode."""

from __future__ import annotations

import json

from ludus.harnesses.program import NODE, SERVER, Launch, Npm, Program, Setting, Task

PACKAGE = "@google/gemini-cli"
OWN_TOOLS = (
    "update_topic", "list_directory", "read_file", "grep_search", "glob", "activate_skill", "replace", "write_file",
    "web_fetch", "run_shell_command", "list_background_processes", "read_background_output", "google_web_search",
    "enter_plan_mode", "exit_plan_mode", "invoke_agent", "ask_user", "write_todos", "save_memory", "read_many_files",
    "get_internal_docs", "complete_task",
)  # fmt: skip


def launch(task: Task, setting: Setting) -> Launch:
    """Return how Gemini CLI plays an episode."""
    settings = {
        "mcpServers": {SERVER: {"httpUrl": task.play_url, "trust": True, "timeout": 600_000}},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "model": {"name": task.model},
        "skills": {"enabled": False},
        **({} if setting.own_tools else {"tools": {"exclude": OWN_TOOLS}}),
    }
    arguments = [
        setting.node, setting.module(f"{PACKAGE}/bundle/gemini.js"), "--model", task.model, "--yolo", "--skip-trust",
        "--output-format", "json", "--extensions", "none",
    ]  # fmt: skip
    variables = {
        "GOOGLE_GEMINI_BASE_URL": task.anthropic_base_url,
        "GEMINI_API_KEY": task.api_key,
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    return Launch(arguments, variables, task.whole, {".gemini/settings.json": json.dumps(settings)})


PROGRAM = Program(
    name="gemini-cli", title="Gemini CLI", version="0.61.0", source=Npm({PACKAGE: "0.61.0", **NODE}),
    wire="generateContent", launch=launch,
)  # fmt: skip
