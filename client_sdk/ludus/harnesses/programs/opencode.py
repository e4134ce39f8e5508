"""OpenCode, by its command `run`."""

from __future__ import annotations

import json

from ludus.harnesses.program import SERVER, Launch, Npm, Program, Setting, Task

PACKAGE = "opencode-linux-x64-baseline"
VERSION = "1.18.33"


def launch(task: Task, setting: Setting) -> Launch:
    """Return how OpenCode plays an episode."""
    config: dict[str, object] = {
        "$schema": "https://opencode.ai/config.json",
        "model": f"policy/{task.model}",
        "small_model": f"policy/{task.model}",
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        "lsp": False,
        "formatter": False,
        "provider": {
            "policy": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "policy",
                "options": {"baseURL": task.openai_base_url, "apiKey": task.api_key},
                "models": {task.model: {"name": task.model, "tool_call": True}},
            }
        },
        "mcp": {SERVER: {"type": "remote", "url": task.play_url, "enabled": True, "oauth": False, "timeout": 60000}},
        "agent": {"title": {"disable": True}},
    }
    if not setting.own_tools:
        config["tools"] = {"*": False, f"{SERVER}_*": True}
    if task.system:
        config["instructions"] = [str(setting.home / "system.md")]
    variables = {
        "OPENCODE_CONFIG": str(setting.home / "opencode.json"),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_CLAUDE_CODE": "1",
        "OPENCODE_DISABLE_SHARE": "1",
    }
    # It installs this package from npm's registry into its folder of configuration, unless it is listed there.
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": VERSION}}}}
    files = {
        "opencode.json": json.dumps(config),
        "system.md": task.system,
        ".config/opencode/package-lock.json": json.dumps(lock),
        ".config/opencode/node_modules/.package-lock.json": "{}",
    }
    arguments = [
        setting.module(f"{PACKAGE}/bin/opencode"), "run", "--pure", "--title", "episode", "--auto",
    ]  # fmt: skip
    return Launch(arguments, variables, task.prompt, files)


PROGRAM = Program(
    name="opencode", title="OpenCode", version=VERSION, source=Npm({PACKAGE: VERSION}), wire="chat", launch=launch,
)  # fmt: skip
