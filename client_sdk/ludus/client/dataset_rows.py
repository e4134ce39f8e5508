"""Rows of tasks for datasets, which trainers read before they play.

They hold the prompt and, in the field `ludus`, the address of the task. They hold no answer: rewards come from the
server. Rows of episodes that were played are in `ludus.client.demonstrations`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from ludus.client import Preview, TaskAddress
from ludus.client.formats import openai_chat, openai_responses

__all__ = ["TaskForm", "task_row"]


TaskForm = Literal["chat", "nemo-gym", "openrlhf", "skyrl", "verl"]
"""The forms of rows of tasks."""


def task_row(form: TaskForm, preview: Preview, address: TaskAddress) -> dict[str, Any]:
    """Return the row of a task.

    Args:
        form: `chat` has `prompt` and `tools` as OpenAI's Chat Completions API takes them, `nemo-gym` has
            `responses_create_params` as its Responses API takes them; `openrlhf`, `skyrl` and `verl` have the
            columns that these trainers read.
        preview: the prompt and the tools.
        address: where to play the task.
    """
    return _TASK_ROWS[form](preview, address) | {"ludus": address.to_json()}


def _prompt(preview: Preview) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = openai_chat.messages(preview.prompt)["messages"]
    return messages


def _chat(preview: Preview, address: TaskAddress) -> dict[str, Any]:
    return {"prompt": _prompt(preview), "tools": openai_chat.tools(preview.tools)}


def _nemo_gym(preview: Preview, address: TaskAddress) -> dict[str, Any]:
    params = openai_responses.messages(preview.prompt)
    return {"responses_create_params": params | {"tools": openai_responses.tools(preview.tools)}}


def _openrlhf(preview: Preview, address: TaskAddress) -> dict[str, Any]:
    label = json.dumps(address.to_json())
    return {"datasource": f"ludus/{address.environment}", "input": _prompt(preview), "label": label}


def _skyrl(preview: Preview, address: TaskAddress) -> dict[str, Any]:
    return {"data_source": f"ludus/{address.environment}", "prompt": _prompt(preview), "env_class": "ludus"}


def _verl(preview: Preview, address: TaskAddress) -> dict[str, Any]:
    return {
        "data_source": f"ludus/{address.environment}",
        "prompt": _prompt(preview),
        "ability": address.environment,
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": preview.task.index, "split": address.split, "task": address.task},
        "agent_name": "ludus",
    }


_TASK_ROWS: Final[Mapping[TaskForm, Callable[[Preview, TaskAddress], dict[str, Any]]]] = {
    "chat": _chat,
    "nemo-gym": _nemo_gym,
    "openrlhf": _openrlhf,
    "skyrl": _skyrl,
    "verl": _verl,
}
