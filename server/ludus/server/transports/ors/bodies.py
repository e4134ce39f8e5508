"""Request bodies of ORS, and their validation errors in FastAPI's form, which both published servers use."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, from_json, to_jsonable_python

from ludus.protocol.bounds import TooComplex, first_errors, footprint, short
from ludus.server.transports.ors.request import HttpError

_SHOWN_VALUES: Final = 1024
"""The most values of an input that an error repeats whole; a larger input is shortened."""

BodyT = TypeVar("BodyT", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class SplitBody(_Body):
    """The body of `/tasks` and `/num_tasks`."""

    split: str


class TaskBody(_Body):
    """The body of `/task`. A negative index counts from the end."""

    split: str
    index: int


class NamedTaskBody(_Body):
    """The body of `/task` in the Ludus extension: a task by its id, which ORS itself cannot request."""

    split: str
    task: str = Field(min_length=1, max_length=200)


class TaskRangeBody(_Body):
    """The body of `/task_range`: a Python slice of a split."""

    split: str
    start: int | None = None
    stop: int | None = None


class CreateBody(_Body):
    """The body of `/create`. `seed` is Ludus's extension; the published servers know the other fields."""

    env_name: str | None = None
    task_spec: dict[str, Any] | None = None
    split: str | None = None
    index: int | None = None
    secrets: dict[str, str] | None = Field(default=None, repr=False)
    toolset_name: str | None = None
    seed: int | None = Field(default=None, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _one_way_to_a_task(self) -> Self:
        by_index = self.split is not None and self.index is not None
        if (self.task_spec is not None) == by_index or (self.split is None) != (self.index is None):
            raise ValueError("Provide either task_spec or both split and index, not both/neither")
        return self


class CallBody(_Body):
    """The body of `/call`."""

    name: str
    input: dict[str, Any]
    task_id: str | None = None


class BlockBody(BaseModel):
    """One block of a candidate's message. `type` decides which fields are used."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["text", "image", "reasoning", "tool_call", "tool_result"]
    text: str = ""
    data: str = ""
    mimeType: str = "image/png"
    name: str = ""
    input: Any = None
    blocks: list[BlockBody] = Field(default_factory=list)
    is_error: bool = False


class MessageBody(BaseModel):
    """One message of a candidate."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "user", "assistant"]
    blocks: list[BlockBody]


class CandidateBody(_Body):
    """One candidate of `/score_group`."""

    messages: list[MessageBody]
    metadata: dict[str, Any] | None = None


class ScoreGroupBody(_Body):
    """The body of `/score_group`."""

    candidates: list[CandidateBody]
    task_id: str | None = None


def read(model: type[BodyT], body: bytes) -> BodyT:
    """Return a body as an instance of `model`.

    Raises:
        HttpError: 422 with FastAPI's list of errors, or 400 for a body that is not UTF-8.
    """
    value = parse(body)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise HttpError(422, _details(first_errors(error, model.model_validate, value), value)) from None


def read_create(body: bytes) -> CreateBody:
    """Return the body of `/create`. The most common form, a task by its index, is checked without pydantic."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError:
        value = None
    if type(value) is dict and len(value) == 3:
        name, split, index = value.get("env_name"), value.get("split"), value.get("index")
        if type(name) is str and type(split) is str and type(index) is int:
            return CreateBody.model_construct(env_name=name, split=split, index=index)
    return read(CreateBody, body)


def read_call(body: bytes) -> tuple[str, dict[str, Any], str | None]:
    """Return `name`, `input` and `task_id` of a `/call`. Valid bodies skip pydantic, because this is the hot path."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError:
        value = None
    if type(value) is dict:
        name = value.get("name")
        arguments = value.get("input")
        task_id = value.get("task_id")
        if (
            type(name) is str
            and type(arguments) is dict
            and (task_id is None or type(task_id) is str)
            and len(value) == 2 + ("task_id" in value)
        ):
            return name, arguments, task_id
    call = read(CallBody, body)
    return call.name, call.input, call.task_id


def parse(body: bytes) -> Any:
    """Return the JSON value of a body.

    Raises:
        HttpError: 400 or 422 in FastAPI's form, the body is missing or is not JSON.
    """
    if not body:
        raise HttpError(422, [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}])
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=_no_constant)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise _json_invalid(error.pos, error.msg) from None
    except UnicodeEncodeError:
        raise _json_invalid(0, "a lone surrogate is not a character") from None
    except (ValueError, RecursionError):
        raise HttpError(400, "There was an error parsing the body") from None
    return value


def read_secrets_header(value: str) -> dict[str, str]:
    """Return the secrets in `X-Secrets`: base64 of a JSON object, each value a string or `{"value": string, …}`.

    Raises:
        HttpError: 400, the header has another form. The message does not repeat its value.
    """
    if not value:
        return {}
    try:
        parsed = json.loads(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise HttpError(400, "X-Secrets must be base64 of a JSON object") from None
    if not isinstance(parsed, dict):
        raise HttpError(400, "X-Secrets must be base64 of a JSON object")
    secrets: dict[str, str] = {}
    for name, entry in parsed.items():
        secret = entry.get("value") if isinstance(entry, dict) else entry
        if not isinstance(secret, str):
            raise HttpError(400, f'X-Secrets: {name[:64]!r} must be a string or {{"value": string}}')
        secrets[name] = secret
    return secrets


def _json_invalid(position: int, why: str) -> HttpError:
    detail = {
        "type": "json_invalid",
        "loc": ["body", position],
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": why},
    }
    return HttpError(422, [detail])


def _no_constant(name: str) -> None:
    raise json.JSONDecodeError(f"{name} is not JSON", name, 0)


def _details(errors: Sequence[ErrorDetails], value: Any) -> list[Mapping[str, Any]]:
    details: list[Mapping[str, Any]] = []
    for item in errors:
        location = item["loc"]
        detail: dict[str, Any] = {"type": item["type"], "loc": ["body", *location], "msg": item["msg"]}
        if "secrets" not in location:
            detail["input"] = _shown(_at(value, location[:-1] if item["type"] == "missing" else location))
        if item["type"] == "value_error":
            detail["ctx"] = {"error": {}}
        details.append(detail)
    return details


def _at(value: Any, location: tuple[int | str, ...]) -> Any:
    for step in location:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return value
    return value


def _shown(value: Any) -> Any:
    """Return the input with secrets masked, and shortened if it is too long to send back."""
    if isinstance(value, dict) and "secrets" in value:
        value = {**value, "secrets": "**********"}
    try:
        footprint({"": value}, _SHOWN_VALUES)
    except TooComplex:
        return short(value, 2048)
    text = json.dumps(value)
    return to_jsonable_python(value, inf_nan_mode="constants") if len(text) <= 2048 else f"{text[:2048]}…"
