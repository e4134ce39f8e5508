"""Cline, by its command-line program."""

from __future__ import annotations

import json
from typing import Any

from ludus.harnesses.program import SERVER, End, Finished, Launch, Npm, Program, Setting, Task, plain_end

PACKAGE = "@cline/cli-linux-x64"
EMPTY = "Model returned empty response"
OWN_TOOLS = (
    "read_files", "search_codebase", "run_commands", "fetch_web_content", "editor", "apply_patch", "ask_question",
    "skills", "spawn_agent", "team_spawn_teammate", "team_shutdown_teammate", "team_status", "team_task",
    "team_run_task", "team_cancel_run", "team_list_runs", "team_await_runs", "team_send_message", "team_broadcast",
    "team_read_mailbox", "team_mission_log", "team_cleanup", "team_create_outcome", "team_attach_outcome_fragment",
    "team_review_outcome_fragment", "team_finalize_outcome", "team_list_outcomes",
)  # fmt: skip


def launch(task: Task, setting: Setting) -> Launch:
    """Return how Cline plays an episode."""
    provider = {
        "provider": "openai-compatible",
        "apiKey": task.api_key,
        "model": task.model,
        "baseUrl": task.openai_base_url,
    }
    providers = {
        "version": 1,
        "lastUsedProvider": "openai-compatible",
        "modes": {},
        "providers": {
            "openai-compatible": {
                "settings": provider, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"
            }
        },
    }  # fmt: skip
    servers = {"mcpServers": {SERVER: {"transport": {"type": "streamableHttp", "url": task.play_url}}}}
    settings = {
        "autoUpdateEnabled": False,
        "telemetryOptOut": True,
        **({} if setting.own_tools else {"disabledTools": OWN_TOOLS}),
    }
    files = {
        ".cline/data/settings/providers.json": json.dumps(providers),
        ".cline/data/settings/cline_mcp_settings.json": json.dumps(servers),
        ".cline/data/settings/global-settings.json": json.dumps(settings),
    }
    arguments = [
        setting.module(f"{PACKAGE}/bin/cline"), "--json", "--auto-approve", "true", "--compaction", "off",
        "--provider", "openai-compatible", "--model", task.model,
    ]  # fmt: skip
    if task.system:
        files[".cline/rules/episode.md"] = task.system
    variables = {"CLINE_NO_AUTO_UPDATE": "1", "CLINE_NO_INTERACTIVE": "1", "CLINE_SESSION_BACKEND_MODE": "local"}
    return Launch([*arguments, task.prompt], variables, "", files)


def end(finished: Finished) -> End:
    """Return what the end means: it ends with an error after empty replies, which are the policy's own doing."""
    last: dict[str, Any] = next((event for event in reversed(finished.events()) if event.get("type") == "error"), {})
    return End(0, EMPTY) if last.get("message") == EMPTY else plain_end(finished)


PROGRAM = Program(
    name="cline", title="Cline", version="3.0.65", source=Npm({PACKAGE: "3.0.65"}), wire="chat", launch=launch, end=end,
    ignored=("data.cline.bot",),  # its feature flags
)  # fmt: skip
