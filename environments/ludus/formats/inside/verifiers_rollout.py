"""A rollout of verifiers whose model is the agent: it runs in a thread, and its requests to the model wait for actions.

How this works:

- `Exchange` runs the rollout in an event loop of its own. `complete` is the model: it publishes a request and waits.
- `RolloutEpisode` reads the requests one after the other. The messages of the first are the prompt and its tools the
  tools of the episode; the messages that a later request adds are the observation.
- An action becomes a chat completion: a tool's call, or a message. The rollout scores itself when it ends.
"""

from __future__ import annotations

import asyncio
import json
import queue
import re
import threading
from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import Any

from .adapter import HostedEpisode
from .values import image, result

STOP_SECONDS = 1.5
REPLY = ("reply", "reply_to_environment", "send_reply_to_environment")
OVERLONG = "the agent has ended the episode; this model's maximum context length is reached (context_length_exceeded)"
"""The refusal of requests after the final message, in words by which verifiers knows that the context is full."""

_DATA_URL = re.compile(r"data:(image/[a-z+.-]+);base64,(.*)", re.DOTALL)


class Overlong(Exception):
    """The agent answers no further requests."""


class Request:
    """A request to the model, which waits for its completion."""

    def __init__(self, body: dict[str, Any], answer: asyncio.Future[dict[str, Any]]) -> None:
        self.messages: list[dict[str, Any]] = list(body.get("messages") or [])
        self.tools: list[dict[str, Any]] = list(body.get("tools") or [])
        self.model = str(body.get("model", ""))
        self.answer = answer


class Ended:
    """The end of a rollout: what it returned, or what it raised."""

    def __init__(self, value: Any, error: BaseException | None) -> None:
        self.value = value
        self.error = error


class Exchange:
    """A rollout in a thread.

    Args:
        rollout: makes the rollout's coroutine, with this exchange as its model.
    """

    def __init__(self, rollout: Callable[[Exchange], Awaitable[Any]]) -> None:
        self._rollout = rollout
        self._events: queue.Queue[Request | Ended] = queue.Queue()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[Any] | None = None
        self._completions = 0
        self._thread = threading.Thread(target=self._run, daemon=True, name="verifiers-rollout")
        self._thread.start()

    def next(self) -> Request | Ended:
        """Return the next request, or the end. Blocks."""
        return self._events.get()

    async def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the completion of a request to the model; it waits until the agent has acted.

        Raises:
            Overlong: the agent has ended the episode.
        """
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._events.put(Request(body, answer))
        return await answer

    def answer(self, request: Request, message: dict[str, Any] | None) -> None:
        """Answer a request with a message of the assistant, or refuse it."""
        self._completions += 1
        completion = None if message is None else completion_of(message, self._completions, request.model)
        self._loop.call_soon_threadsafe(_settle, request.answer, completion)

    def stop(self) -> None:
        """Cancel the rollout and let it clean up, within a bound."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._cancel)
            self._thread.join(STOP_SECONDS)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            value = self._loop.run_until_complete(self._main())
            ended = Ended(value, None)
        except BaseException as error:
            ended = Ended(None, error)
        self._events.put(ended)
        try:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)

    async def _main(self) -> Any:
        self._task = asyncio.current_task()
        return await self._rollout(self)


class RolloutEpisode(HostedEpisode):
    """An episode that is a rollout.

    Args:
        rollout: makes the rollout's coroutine.
        outcome: reads what the rollout returned as the arguments of `values.result` without the content, and the
            messages that no request showed; it raises if the rollout failed.
        replies: whether the agent has a tool to send a message that does not end the episode.
    """

    def __init__(
        self,
        rollout: Callable[[Exchange], Awaitable[Any]],
        outcome: Callable[[Any], tuple[dict[str, Any], list[dict[str, Any]]]],
        replies: bool,
    ) -> None:
        self._outcome = outcome
        self._exchange = Exchange(rollout)
        event = self._exchange.next()
        if isinstance(event, Ended):
            if event.error is not None:
                raise event.error
            outcome(event.value)
            raise RuntimeError("the rollout ended before it asked the model for a message")
        self._request = event
        self._calls = 0
        self.prompt = [prompt_message(message) for message in event.messages]
        self.tools = [hosted_tool(tool["function"]) for tool in event.tools if tool.get("type") == "function"]
        self._reply = reply_name([tool["name"] for tool in self.tools]) if replies else None
        if self._reply is not None:
            self.tools.append(reply_tool(self._reply))

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if tool == self._reply:
            return self._act({"role": "assistant", "content": arguments["message"]})
        self._calls += 1
        function = {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)}
        call = {"id": f"call_{self._calls}", "type": "function", "function": function}
        return self._act({"role": "assistant", "content": None, "tool_calls": [call]})

    def grade(self, answer: str) -> dict[str, Any]:
        return self._act({"role": "assistant", "content": answer}, final=True)

    def close(self) -> None:
        self._exchange.stop()

    def _act(self, message: dict[str, Any], final: bool = False) -> dict[str, Any]:
        before = self._request.messages
        self._exchange.answer(self._request, message)
        event = self._exchange.next()
        while final and isinstance(event, Request):
            self._exchange.answer(event, None)
            event = self._exchange.next()
        if isinstance(event, Request):
            self._request = event
            return result(content_of(new_messages(before, event.messages)))
        if event.error is not None:
            raise event.error
        ended, unseen = self._outcome(event.value)
        return result(content_of(unseen), **ended)


def completion_of(message: dict[str, Any], number: int, model: str) -> dict[str, Any]:
    """Return a message of the assistant as a chat completion."""
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def new_messages(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages that follow the assistant's in the next request.

    A rollout may rewrite its conversation; then all messages are new.
    """
    count = len(before)
    same = [_said(message) for message in after[:count]] == [_said(message) for message in before]
    if same and len(after) > count and after[count].get("role") == "assistant":
        return after[count + 1 :]
    return after


def prompt_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of the conversation as one of a prompt, which has no role for tools and no calls."""
    role = message.get("role", "user")
    content = content_of([message])
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        content.append(f"[calls {function.get('name')} with {function.get('arguments')}]")
    if role == "tool":
        return {"role": "user", "content": ["[result of a tool]", *content]}
    return {"role": {"developer": "system"}.get(role, role), "content": content}


def content_of(messages: list[dict[str, Any]]) -> list[Any]:
    """Return the contents of messages as content of an observation: texts, and images that are part of the data."""
    found: list[Any] = []
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else [content]:
            if part is None or part == "":
                continue
            found.append(_block(part))
    return found


def hosted_tool(function: dict[str, Any]) -> dict[str, Any]:
    """Return a function of a request as a tool of an episode."""
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function["name"], "description": function.get("description") or "", "schema": schema}


def reply_name(others: list[str]) -> str:
    """Return the name of the tool that sends a message, which no other tool has."""
    return next(name for name in REPLY if name not in others)


def reply_tool(name: str) -> dict[str, Any]:
    """Return the tool that sends a message."""
    schema = {
        "type": "object",
        "properties": {"message": {"type": "string", "description": "What you say."}},
        "required": ["message"],
        "additionalProperties": False,
    }
    text = "Send your message to the environment and read what it answers. A final message ends the episode instead."
    return {"name": name, "description": text, "schema": schema}


def _block(part: Any) -> Any:
    if isinstance(part, str):
        return part
    if part.get("type") == "text":
        return str(part.get("text", ""))
    if part.get("type") == "image_url":
        url = part["image_url"]
        address = url.get("url", "") if isinstance(url, dict) else str(url)
        inline = _DATA_URL.fullmatch(address)
        return f"[image: {address}]" if inline is None else image(b64decode(inline[2]), inline[1])
    return json.dumps(part, ensure_ascii=False)


def _said(message: dict[str, Any]) -> tuple[Any, Any]:
    return message.get("role"), message.get("content")


def _settle(answer: asyncio.Future[dict[str, Any]], completion: dict[str, Any] | None) -> None:
    if answer.done():  # the rollout has given up on this request
        return
    if completion is None:
        answer.set_exception(Overlong(OVERLONG))
    else:
        answer.set_result(completion)
