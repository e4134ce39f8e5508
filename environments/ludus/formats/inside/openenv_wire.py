"""What OpenEnv's WebSocket and routes mean: tools, tasks, requests and replies, for servers near and far.

A session is a WebSocket `/ws`; each message is answered by one, and neither has an id. Rewards and `done` are fields of
the reply; the observation's `metadata` is for the trainer unless an option shows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

from .adapter import NotUsable, Refused, description, split
from .values import result

TEST_TASKS = 1000
TEST_SEEDS = 1_000_000_000
"""The first seed of the test split; those of the train split count from 0."""

_LOST_REFUSALS = (
    "Unable to serialize unknown type: <class 'ValueError'>",
    "Unable to serialize unknown type: <class 'AssertionError'>",
)
"""Of openenv 0.10: an error of a model's custom validator cannot be sent, and its server ends the session instead."""

Request = Callable[[str, str, Any], "tuple[int, Any]"]
"""Makes an HTTP request with a JSON body; returns the status and the JSON of the reply."""


class ServerError(Exception):
    """The server reported a failure of the environment, or replied with something else than the protocol has."""


class ActionFailed(ServerError):
    """The environment raised over an action; the session goes on."""


class AtCapacity(ServerError):
    """The server has no free session, and has begun none."""


# ── what a server has ──────────────────────────────────────────────────────────────────────────────────────────────


def facts_of(request: Request) -> dict[str, Any]:
    """Return the name, the schemas and the splits of a server.

    Raises:
        NotUsable: it is no OpenEnv server.
    """
    status, schemas = request("GET", "/schema", None)
    if status != 200 or not isinstance(schemas, dict) or not isinstance(schemas.get("action"), dict):
        raise NotUsable(f"GET /schema returned {status}, so this is no OpenEnv server")
    status, about = request("GET", "/metadata", None)
    about = about if status == 200 and isinstance(about, dict) else {}
    status, names = request("GET", "/list_environments", None)
    name = names[0] if status == 200 and isinstance(names, list) and names else about.get("name")
    facts = {
        "name": str(name or "openenv"),
        "text": str(about.get("description") or ""),
        "version": str(about.get("version") or "0"),
        "action": schemas["action"],
        "tools": None,
        "splits": _splits(request, name) if name and status == 200 else None,
    }
    return facts


def _splits(request: Request, name: str) -> list[dict[str, Any]] | None:
    status, splits = request("GET", f"/{name}/splits", None)
    if status != 200 or not isinstance(splits, list):
        return None
    found = []
    for one in splits:
        status, reply = request("POST", f"/{name}/num_tasks", {"split": one["name"]})
        if status != 200 or not isinstance(reply, dict):
            raise NotUsable(
                f"the environment lists the split {one['name']!r}, but num_tasks returned {status}: {reply}"
            )
        if reply["num_tasks"] > 0:
            kind = one.get("type")
            kind = kind if kind in ("train", "validation", "test") else None
            found.append({"name": one["name"], "count": reply["num_tasks"], "type": kind})
    return found or None


def is_mcp(action: dict[str, Any]) -> bool:
    """Return whether actions are calls of MCP tools, by the schema of the actions."""
    properties = action.get("properties") or {}
    constant = (properties.get("type") or {}).get("const")
    return constant in ("call_tool", "list_tools") or set(properties) <= {"metadata"}


def list_tools() -> Generator[str, str, list[dict[str, Any]] | None]:
    """Ask a session for its MCP tools: yields requests and receives replies. Returns None if it has none."""
    for before in ((), ({"type": "reset", "data": {}},)):
        for message in before:
            yield json.dumps(message)
        reply = json.loads((yield json.dumps({"type": "step", "data": {"type": "list_tools"}})))
        observation = (reply.get("data") or {}).get("observation") if reply.get("type") == "observation" else None
        if isinstance(observation, dict) and isinstance(observation.get("tools"), list):
            return [
                {
                    "name": one["name"],
                    "description": one.get("description") or "",
                    "schema": one.get("input_schema") or one.get("inputSchema") or {"type": "object"},
                }
                for one in observation["tools"]
            ]
    return None


def tools_of(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tools of the agent: the MCP tools, or one tool `step` with the schema of the actions."""
    if facts["tools"] is not None:
        return list(facts["tools"])
    schema = dict(facts["action"])
    text = str(schema.pop("description", "") or "Take an action.")
    if "metadata" in (schema.get("properties") or {}) and "metadata" not in schema.get("required", ()):
        schema["properties"] = {name: one for name, one in schema["properties"].items() if name != "metadata"}
    return [{"name": "step", "description": text, "schema": schema}]


def describe(
    facts: dict[str, Any], *, package: str, seeded: bool | None, deterministic: bool, broken: dict[str, str]
) -> dict[str, Any]:
    """Return the description of an environment.

    Args:
        facts: from `facts_of`, with `tools` from `list_tools`.
        package: the name and version of what serves it.
        seeded: whether `reset` accepts a seed; None if that is unknown.
        deterministic: whether the user promises that the same task and actions give the same episode.
        broken: what is not promised in addition.
    """
    if facts["splits"] is not None:
        splits = [split(one["name"], one["count"], one["type"]) for one in facts["splits"]]
        seeds = "an episode is chosen by split and index, and reset gets no seed"
    else:
        splits = [split("train", None), split("test", TEST_TASKS)]
        seeds = "OpenEnv does not require that reset uses its seed"
        if seeded is False:
            seeds = "reset of this environment accepts no seed"
    promised = {} if deterministic else {"seeds": seeds}
    return description(
        facts["name"],
        facts["text"],
        splits,
        tools_of(facts),
        package=package,
        version=facts["version"],
        seedable=deterministic,
        forkable=deterministic,
        not_promised={
            **promised,
            "truncation": "OpenEnv has one flag for all ends, so a time limit of the environment ends like a success",
            **broken,
        },
    )


def task_of(facts: dict[str, Any], seeded: bool | None, split: str, index: int) -> dict[str, Any]:
    """Return a task: a split and an index where the environment has tasks, otherwise a seed of `reset`."""
    if facts["splits"] is not None:
        return {"id": f"{split}-{index}", "private": {"reset": {"split": split, "index": index}}}
    seed = index + (TEST_SEEDS if split == "test" else 0)
    if seeded is False:
        return {"id": f"episode-{seed}", "private": {"reset": {}}}
    return {"id": f"seed-{seed}", "public": {"reset_seed": seed}, "private": {"reset": {"seed": seed}}}


# ── an episode ─────────────────────────────────────────────────────────────────────────────────────────────────────


def reset_message(task: dict[str, Any], more: dict[str, Any] | None) -> str:
    """Return the request that begins an episode of a task."""
    return json.dumps({"type": "reset", "data": {**(more or {}), **task["private"]["reset"]}})


def step_message(facts: dict[str, Any], tool: str, arguments: dict[str, Any]) -> str:
    """Return the request of a tool call."""
    if facts["tools"] is None:
        return json.dumps({"type": "step", "data": arguments})
    return json.dumps({"type": "step", "data": {"type": "call_tool", "tool_name": tool, "arguments": arguments}})


def prompt_of(facts: dict[str, Any], reply: str, show_metadata: bool) -> list[dict[str, Any]]:
    """Return the prompt of an episode from the reply to its reset.

    Raises:
        ServerError: the reset failed, or the episode ended with it.
    """
    data = _observation(reply)
    if data.get("done"):
        raise ServerError("reset returned done=True, so the episode has no step")
    how = "one of the tools" if facts["tools"] is not None else "the tool `step`"
    text = f"You act in the environment {facts['name']}. {facts['text']}".rstrip()
    content, _ = _content(data, show_metadata)
    head = f"{text}\nCall {how} until the episode ends. The first observation:"
    return [{"role": "user", "content": [head, *content]}]


def outcome_of(reply: str, show_metadata: bool, *, shows_errors: bool = False) -> dict[str, Any]:
    """Return the outcome of a step from its reply.

    Raises:
        Refused: the server did not accept the action, or the environment raised over it and `shows_errors` lets the
            agent read that.
        ServerError: the environment failed.
    """
    if '"SESSION_ERROR"' in reply and any(sign in reply for sign in _LOST_REFUSALS):
        return result("The action is not valid, and the environment's server ended the episode over it.", finished=True)
    try:
        data = _observation(reply)
    except ActionFailed as error:
        if not shows_errors:
            raise
        raise Refused(f"the action failed: {error}") from error
    observation = data.get("observation")
    if not shows_errors and isinstance(observation, dict) and "tool_name" in observation and observation.get("error"):
        raise ActionFailed(f"the tool {observation['tool_name']!r} failed: {observation['error']}")
    content, metadata = _content(data, show_metadata)
    return result(content, reward=data.get("reward"), finished=bool(data.get("done")), metadata=metadata)


def check_capacity(reply: str) -> None:
    """Raise `AtCapacity` if the reply says that the server has no free session; other errors are not looked at."""
    try:
        _observation(reply)
    except AtCapacity:
        raise
    except (Refused, ServerError):
        return


def _observation(text: str) -> dict[str, Any]:
    try:
        reply = json.loads(text)
        kind, data = reply["type"], reply["data"]
    except (ValueError, KeyError, TypeError):
        raise ServerError(f"the server sent something else than an OpenEnv reply: {text[:200]!r}") from None
    if kind == "observation" and isinstance(data, dict):
        return dict(data)
    if kind != "error" or not isinstance(data, dict):
        raise ServerError(f"the server sent a reply of the type {kind!r}")
    message = str(data.get("message", ""))
    if data.get("code") == "VALIDATION_ERROR":
        raise Refused(refusal(data.get("errors")))
    if data.get("code") == "CAPACITY_REACHED":
        raise AtCapacity(message)
    if data.get("code") == "EXECUTION_ERROR":
        raise ActionFailed(message)
    raise ServerError(f"{data.get('code')}: {message}")


def refusal(errors: Any) -> str:
    """Return what the agent reads about the errors that pydantic found in an action."""
    if not isinstance(errors, list):
        return "the action is not valid"
    parts = [
        f"{'.'.join(map(str, error.get('loc', ())))}: {error.get('msg', '')}"
        for error in errors
        if isinstance(error, dict)
    ]
    return f"the action is not valid: {'; '.join(parts[:5])}" if parts else "the action is not valid"


def _content(data: dict[str, Any], show_metadata: bool) -> tuple[list[Any], dict[str, Any]]:
    observation = dict(data.get("observation") or {})
    metadata = observation.pop("metadata", None) or data.get("metadata") or {}
    if "tool_name" in observation and "result" in observation:
        content = _called(observation)
    else:
        content = [json.dumps(observation, ensure_ascii=False)]
    if show_metadata and metadata:
        content.append(json.dumps({"metadata": metadata}, ensure_ascii=False))
        metadata = {}
    return content, {"metadata": metadata} if metadata else {}


def _called(observation: dict[str, Any]) -> list[Any]:
    """Return what a call of an MCP tool shows."""
    error, found = observation.pop("error", None), observation.pop("result", None)
    del observation["tool_name"]
    content: list[Any] = []
    if error:
        content.append(f"The tool failed: {error.get('message') if isinstance(error, dict) else error}")
    elif isinstance(found, dict) and isinstance(found.get("content"), list):
        content += [_block(one) for one in found["content"]]
        if not content and found.get("structured_content") is not None:
            content.append(json.dumps(found["structured_content"], ensure_ascii=False))
    elif found is not None:
        content.append(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False))
    if observation:
        content.append(json.dumps(observation, ensure_ascii=False))
    return content


def _block(block: Any) -> Any:
    if isinstance(block, dict) and block.get("type") == "text":
        return str(block.get("text", ""))
    if isinstance(block, dict) and block.get("type") == "image":
        return {"type": "image", "data": block.get("data"), "mimeType": block.get("mimeType")}
    return json.dumps(block, ensure_ascii=False)
