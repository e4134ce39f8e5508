"""OpenAI's Codex CLI, by its command `exec`."""

from __future__ import annotations

from ludus.harnesses.program import SERVER, Launch, Npm, Program, Setting, Task

PACKAGE = "@openai/codex-linux-x64"
OWN_TOOLS = "shell_tool = false\nunified_exec = false\nview_image = false\ngoals = false"
CONFIG = """
model = "{model}"
model_provider = "policy"
approval_policy = "never"
sandbox_mode = "danger-full-access"
web_search = "disabled"
check_for_update_on_startup = false
model_reasoning_summary = "none"

[analytics]
enabled = false

[feedback]
enabled = false

[history]
persistence = "none"

[model_providers.policy]
name = "policy"
base_url = "{base_url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
supports_websockets = false

[mcp_servers.{server}]
url = "{play_url}"
startup_timeout_sec = 60
tool_timeout_sec = 600
required = true

[agents]
enabled = false

[features]
apps = false
plugins = false
remote_plugin = false
tool_suggest = false
{features}
"""
"""The text of its configuration. What is inserted are addresses and names without quotes."""


def launch(task: Task, setting: Setting) -> Launch:
    """Return how Codex plays an episode."""
    config = CONFIG.format(
        model=task.model, base_url=task.openai_base_url, server=SERVER, play_url=task.play_url,
        features="" if setting.own_tools else OWN_TOOLS,
    )  # fmt: skip
    arguments = [
        setting.module(f"{PACKAGE}/vendor/x86_64-unknown-linux-musl/bin/codex"), "exec", "--skip-git-repo-check",
        "--ephemeral", "-",
    ]  # fmt: skip
    variables = {"CODEX_HOME": str(setting.home / ".codex"), "OPENAI_API_KEY": task.api_key}
    return Launch(arguments, variables, task.whole, {".codex/config.toml": config})


PROGRAM = Program(
    name="codex", title="Codex CLI", version="0.171.0", source=Npm({PACKAGE: "npm:@openai/codex@0.171.0-linux-x64"}),
    wire="responses", launch=launch,
)  # fmt: skip
