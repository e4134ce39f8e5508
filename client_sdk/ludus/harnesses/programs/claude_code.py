"""Anthropic's Claude Code, by its print mode."""

from __future__ import annotations

import json

from ludus.harnesses.program import SERVER, End, Finished, Launch, Npm, Program, Setting, Task, plain_end

PACKAGE = "@anthropic-ai/claude-code-linux-x64"


def launch(task: Task, setting: Setting) -> Launch:
    """Return how Claude Code plays an episode."""
    servers = {"mcpServers": {SERVER: {"type": "http", "url": task.play_url, "alwaysLoad": True}}}
    arguments = [
        setting.module(f"{PACKAGE}/claude"), "--print", "--output-format", "stream-json", "--verbose",
        "--model", task.model, "--mcp-config", str(setting.home / "mcp.json"), "--strict-mcp-config",
        "--permission-mode", "bypassPermissions", "--no-session-persistence", "--setting-sources", "",
        "--disable-slash-commands",
    ]  # fmt: skip
    if not setting.own_tools:
        arguments += ["--tools", ""]
    if task.system:
        arguments += ["--append-system-prompt", task.system]
    variables = {
        "ANTHROPIC_BASE_URL": task.anthropic_base_url,
        "ANTHROPIC_API_KEY": task.api_key,
        "ANTHROPIC_SMALL_FAST_MODEL": task.model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "IS_SANDBOX": "1",  # it refuses to skip permissions as root without
        "MCP_CONNECTION_NONBLOCKING": "false",  # else it asks the model before it has the episode's tools
        "MCP_CONNECT_TIMEOUT_MS": "60000",
        "MCP_TIMEOUT": "60000",
    }
    return Launch(arguments, variables, task.prompt, {"mcp.json": json.dumps(servers)})


def end(finished: Finished) -> End:
    """Return what the end means: a server of the episode that was not reached is the program's failure."""
    for event in finished.events():
        if event.get("subtype") == "init":
            states = {server.get("name"): server.get("status") for server in event.get("mcp_servers", ())}
            if states.get(SERVER) != "connected":
                return End(1, f"Claude Code did not connect to the episode: {states.get(SERVER)}")
    return plain_end(finished)


PROGRAM = Program(
    name="claude-code", title="Claude Code", version="2.1.197", source=Npm({PACKAGE: "2.1.197"}), wire="messages",
    launch=launch, end=end,
)  # fmt: skip
