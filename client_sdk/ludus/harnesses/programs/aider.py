"""aider, which has no client for MCP: it suggests shell commands, and among them are the tools of the episode."""

from __future__ import annotations

import json

from ludus.harnesses.bridge import Bridge, instructions
from ludus.harnesses.program import PEERS, Launch, Program, Setting, Task, Venv


def launch(task: Task, setting: Setting) -> Launch:
    """Return how aider plays an episode."""
    given = {
        "openai_base_url": task.openai_base_url,
        "api_key": task.api_key,
        "model": task.model,
        "prompt": f"{task.whole}\n\n{instructions(Bridge(task.play_url).tools())}",
    }
    variables = {
        "OPENAI_API_BASE": task.openai_base_url,
        "OPENAI_API_KEY": task.api_key,
        "AIDER_ANALYTICS_DISABLE": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    arguments = [setting.executable("python"), str(PEERS / "aider_agent.py")]
    # It fetches this list from the internet unless it has a copy.
    prices = {f"openai/{task.model}": {"max_input_tokens": 1_000_000, "litellm_provider": "openai", "mode": "chat"}}
    files = {".aider/caches/model_prices_and_context_window.json": json.dumps(prices)}
    return Launch(arguments, variables, json.dumps(given) + "\n", files)


PROGRAM = Program(
    name="aider", title="aider", version="0.86.2", source=Venv(("aider-chat==0.86.2",)), wire="chat", launch=launch,
    bridge=True,
)  # fmt: skip
