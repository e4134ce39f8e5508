"""Alibaba's Qwen Code, by its prompt mode."""

from __future__ import annotations

import json
import re
from typing import Any

from ludus.harnesses.program import NODE, SERVER, End, Finished, Launch, Npm, Program, Setting, Task, plain_end

PACKAGE = "@qwen-code/qwen-code"
OWN_TOOLS = (
    "agent", "enter_worktree", "exit_worktree", "get_goal", "list_agents", "record_artifact", "report_findings",
    "send_message", "skill", "task_stop", "update_goal",
)  # fmt: skip
_PLATFORM = re.compile(r"\[API Error: (?!Model stream ended)")


def launch(task: Task, setting: Setting) -> Launch:
    """Return how Qwen Code plays an episode."""
    settings: dict[str, object] = {
        "$version": 3,
        "mcpServers": {SERVER: {"httpUrl": task.play_url, "trust": True, "timeout": 600_000}},
        "security": {"auth": {"selectedType": "openai"}},
        "model": {"name": task.model, "skipStartupContext": True},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        "skills": {"disabledLevels": ["bundled", "user", "project", "extension"]},
        "tools": {"approvalMode": "yolo", "toolSearch": {"enabled": False}},
    }
    if not setting.own_tools:
        settings["tools"] = {"approvalMode": "yolo", "core": ["none"], "toolSearch": {"enabled": False}}
        settings["permissions"] = {"deny": OWN_TOOLS}
    arguments = [setting.node, setting.module(f"{PACKAGE}/cli.js"), "--output-format", "json"]
    if task.system:
        arguments += ["--append-system-prompt", task.system]
    variables = {
        "OPENAI_BASE_URL": task.openai_base_url,
        "OPENAI_API_KEY": task.api_key,
        "QWEN_CODE_SYSTEM_SETTINGS_PATH": str(setting.home / "settings.json"),
        "QWEN_CODE_NO_RELAUNCH": "1",
        "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
    }
    return Launch(arguments, variables, task.prompt, {"settings.json": json.dumps(settings)})


def end(finished: Finished) -> End:
    """Return what the end means: an empty reply, or one call over and over, is the policy's own doing."""
    if finished.code < 0:
        return plain_end(finished)
    try:
        events = json.loads(finished.output)
    except ValueError:
        return End(finished.code or 1, "it printed no result")
    first: dict[str, Any] = next((event for event in events if event.get("subtype") == "init"), {})
    states = {server.get("name"): server.get("status") for server in first.get("mcp_servers", ())}
    if states.get(SERVER) != "connected":
        return End(1, f"it did not connect to the episode: {states.get(SERVER)}")
    message = (events[-1].get("error") or {}).get("message", "")
    return End(1, message) if events[-1].get("type") != "result" or _PLATFORM.match(message) else End(0, message)


PROGRAM = Program(
    name="qwen-code", title="Qwen Code", version="0.24.4", source=Npm({PACKAGE: "0.24.4", **NODE}), wire="chat",
    launch=launch, end=end,
)  # fmt: skip
