"""The client's own state of an ORS session, since ORS reports no step numbers, no reward log and no end reason."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import from_json

from ludus.client.transports._ors_http import UNKNOWN_TASK_ID, Reply, json_of
from ludus.client.transports.base import error_of
from ludus.protocol import errors
from ludus.protocol.content import Content, ImageBlock, Message, TextBlock
from ludus.protocol.episodes import (
    Candidate,
    EpisodeInfo,
    RewardsResult,
    ScoreGroupResult,
    StepError,
    StepErrorCode,
    StepResult,
    TaskRow,
    ToolSpec,
)
from ludus.protocol.lifecycle import EVENT_OF_REASON, EndReason, EpisodeStatus, advance
from ludus.protocol.rewards import Reward, RewardEntry, total

_INCIDENT: Final = re.compile(r"incident ([0-9a-f]{8,})")

_CODES: Final[Mapping[str, StepErrorCode]] = {
    "not_found": "unknown_tool",
    "name_collision": "unknown_tool",
    "input_validation": "invalid_arguments",
}
"""Step error codes by the `reason` that `openreward` servers send."""

_PREFIXES: Final[tuple[tuple[str, StepErrorCode], ...]] = (
    ("Tool input validation error", "invalid_arguments"),
    ("Tool name collision", "unknown_tool"),
)
"""Step error codes by the beginning of the message, for `ors-sdk` servers, which send no `reason`."""


@dataclass
class OrsSession:
    """One episode as an ORS session."""

    sid: str
    group: str
    environment: str
    row: TaskRow
    seed: int
    terminal: tuple[str, str] | None = None
    """The tool that takes a final message, and the name of its argument."""
    allowed: frozenset[str] | None = None
    """The only tools that may be called; None if the start request named none."""
    max_steps: int | None = None
    steps: int = 0
    status: EpisodeStatus = EpisodeStatus.RUNNING
    end_reason: EndReason | None = None
    incident: str | None = None
    entries: list[RewardEntry] = field(default_factory=list)

    def info(self) -> EpisodeInfo:
        """Return the state of the episode, as far as this client knows it."""
        return EpisodeInfo(
            episode=self.sid,
            group=self.group,
            environment=self.environment,
            task=self.row,
            seed=self.seed,
            status=self.status,
            end_reason=self.end_reason,
            steps=self.steps,
            reward=self.reward(),
            incident=self.incident,
        )

    def reward(self) -> Reward:
        """Return the total so far; unscored if the episode failed or was closed early."""
        if self.status in (EpisodeStatus.FAILED, EpisodeStatus.CLOSED):
            return Reward.unscored(f"the episode ended by {self.end_reason}")
        return total(entry.reward for entry in self.entries)

    def rewards(self, after: int) -> RewardsResult:
        """Return the reward log without its first `after` entries."""
        return RewardsResult(
            entries=tuple(self.entries[after:]), total=self.reward(), status=self.status, end_reason=self.end_reason
        )

    def end(self, reason: EndReason) -> None:
        """Set the end reason, unless it is already set."""
        if self.end_reason is None:
            self.status = advance(self.status, EVENT_OF_REASON[reason])
            self.end_reason = reason

    def check_running(self) -> None:
        """Check that the episode has not ended.

        Raises:
            EpisodeEnded: it has.
        """
        if self.end_reason is not None:
            raise errors.EpisodeEnded(
                f"episode {self.sid} has ended ({self.end_reason}); start a new one",
                episode=self.sid,
                endReason=str(self.end_reason),
            )

    def settle(self, number: int, tool: str, text: str, *, grading: bool = False) -> StepResult:
        """Convert the JSON text of a result, and update the reward log and the status.

        Raises:
            ProtocolViolation: the text is malformed.
        """
        result = self._read(number, tool, text, grading=grading)
        if result.reward is not None:
            source = "grade" if grading else "step"
            self.entries.append(RewardEntry(step=number, source=source, reward=result.reward))
        reason = result.end_reason
        if reason is None and not grading and self.max_steps is not None and number >= self.max_steps:
            reason = EndReason.STEP_LIMIT
        if grading and result.error is None:
            reason = EndReason.SUBMITTED
        if reason is None:
            return result
        self.end(reason)
        return result.model_copy(update={"status": self.status, "end_reason": reason})

    def failure_in(self, reply: Reply, tool: str) -> errors.LudusError:
        """Return the error of a reply without a result."""
        if reply.forgotten:
            reason = reply.error
            if reason == UNKNOWN_TASK_ID:
                reason = "the connection broke, and the server does not know the call any more (it may have restarted)"
            return errors.InfrastructureFailed(
                f"the result of {tool!r} is lost: {reason}. This server has no keys for calls, so the call is not made "
                "again; start another episode",
                episode=self.sid,
                endReason="infrastructure_error",
            )
        if reply.extension is not None:
            return error_of(reply.extension)
        match = _INCIDENT.search(reply.error)
        facts = {"incident": match[1]} if match else {}
        return errors.EnvironmentFailed(
            f"the tool failed: {reply.error}", episode=self.sid, endReason="environment_error", **facts
        )

    def failed(self, error: errors.LudusError) -> errors.LudusError:
        """Update the status from an error of the server, and return the error."""
        if isinstance(error, errors.EpisodeFailed):
            self.incident = error.incident
            self.end(EndReason(error.data.get("endReason", EndReason.ENVIRONMENT_ERROR)))
        elif isinstance(error, errors.EpisodeEnded):
            self.end(EndReason(error.data.get("endReason", EndReason.CLOSED)))
        elif isinstance(error, errors.EpisodeNotFound):
            self.end(EndReason.EXPIRED)
        return error

    def _read(self, number: int, tool: str, text: str, *, grading: bool) -> StepResult:
        try:
            body = from_json(text)
            if body["ok"] is not True:
                return self._mistake(number, tool, body)
            output = body["output"]
            content = _content(output["blocks"])
            metadata = output.get("metadata") or {}
            if "ludus" in body:
                facts = {**body["ludus"], "step": number, "metadata": metadata}
                result = StepResult.model_validate({**facts, "content": ()})
                return result.model_copy(update={"content": content})
            reward = output.get("reward")
            finished = EndReason.SUBMITTED if grading else EndReason.COMPLETED
            return StepResult(
                step=number,
                content=content,
                reward=None if reward is None else Reward.of(reward),
                metadata=metadata if isinstance(metadata, dict) else {"metadata": metadata},
                end_reason=finished if output.get("finished") else None,
            )
        except (ValidationError, ValueError, TypeError, KeyError) as problem:
            raise errors.ProtocolViolation(f"the result of {tool!r} is malformed: {problem!r}") from None

    def _mistake(self, number: int, tool: str, body: Mapping[str, Any]) -> StepResult:
        message, reason = str(body["error"]), body.get("reason")
        if reason == "episode_finished":
            self.end(EndReason.COMPLETED)
            self.check_running()
        extension = body.get("ludus")
        if isinstance(extension, dict) and extension.get("error"):
            error = StepError.model_validate(extension["error"])
        else:
            error = StepError(code=_code(reason, message, tool), message=message)
        noise = extension.get("noise") if isinstance(extension, dict) else None
        return StepResult(step=number, content=(TextBlock(text=error.message),), error=error, noise=noise)


def unknown_tool(number: int, tool: str, allowed: frozenset[str]) -> StepResult:
    """Return the result of a call of a tool that the start request did not allow."""
    message = f"There is no tool {tool!r}. Tools: {', '.join(sorted(allowed))}."
    return StepResult(
        step=number, content=(TextBlock(text=message),), error=StepError(code="unknown_tool", message=message)
    )


def row_of(spec: Any, split: str, index: int, *, ours: bool) -> TaskRow:
    """Return the task row of an ORS task. A task without an id gets its index as the id."""
    fields = dict(spec) if isinstance(spec, dict) else {"task": spec}
    name = fields.get("id")
    if isinstance(name, str) and 0 < len(name) <= 200:
        del fields["id"]
    else:
        name = str(index)
    if ours:
        fields.pop("split", None)
    return TaskRow(id=name, split=split, index=index, fields=fields)


def spec_of(tool: Mapping[str, Any]) -> ToolSpec:
    """Return the spec of an ORS tool; a tool without a schema takes no arguments."""
    schema = tool.get("input_schema") or {"type": "object", "properties": {}}
    return ToolSpec(name=tool["name"], description=tool.get("description") or "", input_schema=schema)


def messages_of(messages: Any) -> tuple[Message, ...]:
    """Return the messages in an answer of `/messages`."""
    return tuple(Message(role=message["role"], content=_content(message["blocks"])) for message in messages)


def prompt_of(blocks: Any) -> tuple[Message, ...]:
    """Return the message in an answer of `/prompt`."""
    return (Message(role="user", content=_content(blocks)),)


def blocks_of(message: Message) -> list[dict[str, Any]]:
    """Return the content of a message as ORS blocks."""
    return [
        {"text": block.text, "detail": None, "type": "text"}
        if isinstance(block, TextBlock)
        else {"data": block.data, "mimeType": block.mime_type, "detail": None, "type": "image"}
        for block in message.content
    ]


def scores_of(reply: Reply, candidates: Mapping[str, Candidate]) -> ScoreGroupResult:
    """Return the rewards in a reply of `/score_group`.

    Raises:
        EnvironmentFailed: the reply has none. From Ludus servers it is the typed error of the reply instead.
    """
    if reply.end is None:
        raise error_of(reply.extension) if reply.extension else errors.EnvironmentFailed(reply.error)
    scores = json_of(reply.end)["scores"]
    rewards = {}
    for name, score in zip(candidates, scores, strict=True):
        value, metadata = score["reward"], score.get("metadata") or {}
        components = metadata.get("components") if isinstance(metadata, dict) else None
        if value is None:
            rewards[name] = Reward.unscored("the judge gave no verdict")
        elif components:
            rewards[name] = Reward.model_validate(metadata)
        else:
            rewards[name] = Reward.of(value)
    return ScoreGroupResult(rewards=rewards)


def _content(blocks: Any) -> tuple[Content, ...]:
    content: list[Content] = []
    for block in blocks:
        kind = block["type"]
        if kind in ("text", "reasoning"):
            content.append(TextBlock(text=block["text"]))
        elif kind == "image":
            content.append(ImageBlock(data=block["data"], mime_type=block["mimeType"]))
        elif kind == "tool_call":
            content.append(TextBlock(text=f"{block['name']}({json.dumps(block['input'], ensure_ascii=False)})"))
        elif kind == "tool_result":
            content += _content(block["blocks"])
    return tuple(content)


def _code(reason: Any, message: str, tool: str) -> StepErrorCode:
    if reason in _CODES:
        return _CODES[reason]
    for prefix, code in _PREFIXES:
        if message.startswith(prefix):
            return code
    return "unknown_tool" if message == f"{tool!r} is not a valid tool" else "refused"
