"""Wire types: camelCase, closed, frozen, finite, and the same after a round trip."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ludus.protocol import (
    METHODS,
    Call,
    EndReason,
    EpisodeStatus,
    ImageBlock,
    Message,
    Reward,
    Scope,
    StepResult,
    TextBlock,
    WireModel,
    content,
    episodes,
    errors,
    jsonrpc,
    rewards,
    text_of,
    worlds,
)
from ludus.protocol.identifiers import METHOD_PREFIX, RESERVED_TOOL_NAMES, SUBMIT_TOOL

MODULES = (content, episodes, worlds, rewards, jsonrpc, errors)
MODELS = sorted(
    {
        value
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, WireModel) and value is not WireModel
    },
    key=lambda kind: kind.__name__,
)

TASK = {"id": "t", "split": "train", "index": 0, "fields": {}}
INFO = {
    "episode": "e", "group": "g", "environment": "env", "task": TASK, "seed": 1, "status": "running",
    "endReason": None, "steps": 0, "reward": None,
}  # fmt: skip
STARTED = {
    "episode": "e", "task": TASK, "seed": 1, "prompt": [{"content": [{"text": "hi", "type": "text"}]}], "tools": [],
    "gradable": True, "limits": {"maxSteps": 3}, "play": {"path": "/play/c/mcp", "expiresAt": 1.5},
}  # fmt: skip
PUBLISHED = {
    "name": "env", "description": "", "version": "1", "splits": [{"name": "train", "type": "train", "count": None}],
    "tools": [{"name": "a", "description": "", "inputSchema": {"type": "object"}}], "seedable": True,
    "gradable": False, "forkable": False, "groupScoring": False, "rewardRange": [0, 1],
}  # fmt: skip
LIMITS = ("maxSteps", "seconds", "toolSeconds", "observationChars", "totalObservationChars", "idleSeconds")
WHERE = {"environment": "env", "split": "train"}
WORLD = {
    "world": "w", "environment": "env", "split": "train", "version": 1, "busy": False, "expiresAt": None,
    "versions": [{"version": 1, "bytes": 5, "createdAt": 1.5, "episode": "e", "task": "t"}],
    "origin": {"world": "v", "version": 0},
}  # fmt: skip


def kind_of(name: str) -> Any:
    """Return the wire type of a name."""
    return getattr(worlds if "World" in name else episodes, name)


SAMPLES: dict[str, dict[str, Any]] = {
    "CloseParams": {"episode": "e"},
    "CloseResult": {"info": INFO},
    "ForkParams": {"episode": "e", "step": 2, "key": "k"},
    "ForkResult": {"group": "g", "episode": STARTED},
    "GetEpisodeParams": {"episode": "e"},
    "GetEpisodeResult": {"info": INFO},
    "GetTaskParams": {**WHERE, "index": 3},
    "GetTaskResult": {"task": TASK},
    "GradeParams": {"episode": "e", "answer": "", "key": "k"},
    "GradeResult": {"reward": None, "info": INFO},
    "ListEnvironmentsParams": {},
    "ListEnvironmentsResult": {"environments": [PUBLISHED]},
    "ListSplitsParams": {"environment": "env"},
    "ListSplitsResult": {"splits": PUBLISHED["splits"]},
    "ListTasksParams": {**WHERE, "cursor": "c", "limit": 1000},
    "ListTasksResult": {"tasks": [TASK], "nextCursor": None},
    "ReportOutcomesParams": {**WHERE, "outcomes": [{"task": "t", "reward": -1.5, "passed": False}], "key": "k"},
    "ReportOutcomesResult": {"recorded": 1},
    "RewardsParams": {"episode": "e", "after": 1},
    "RewardsResult": {
        "entries": [{"step": 1, "source": "step", "reward": {"value": 1}}], "total": {"value": 1},
        "status": "completed", "endReason": "submitted",
    },
    "SampleTasksParams": {**WHERE, "count": 2, "seed": 0, "strategy": "band", "band": [0.1, 0.9]},
    "SampleTasksResult": {"tasks": [TASK, TASK]},
    "ScoreGroupParams": {"group": "g", "candidates": {"e": {"messages": []}}, "key": "k"},
    "ScoreGroupResult": {"rewards": {"e": {"value": None, "reason": "tie"}}},
    "ListWorldsParams": {"environment": "env", "cursor": "w_1", "limit": 10},
    "ListWorldsResult": {"worlds": [WORLD], "nextCursor": None},
    "GetWorldParams": {"world": "w"},
    "GetWorldResult": {"world": WORLD},
    "BranchWorldParams": {"world": "w", "version": 1, "count": 2, "key": "k"},
    "BranchWorldResult": {"worlds": [WORLD]},
    "ResetWorldParams": {"world": "w", "version": 0, "key": "k"},
    "ResetWorldResult": {"world": WORLD},
    "DeleteWorldParams": {"world": "w"},
    "DeleteWorldResult": {"deleted": True},
    "StartParams": {**WHERE, "seed": 2**53 - 1, "limits": {"idleSeconds": 1.5}, "tools": ["a"], "key": "k"},
    "StartResult": {"group": "g", "episodes": [STARTED]},
    "StepParams": {"episode": "e", "step": 1, "tool": "a", "arguments": {"snake_case": {"kept": 1}}, "key": "k"},
    "StepResult": {
        "step": 1, "content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}],
        "error": {"code": "refused", "message": "no"}, "endReason": "step_limit", "status": "truncated",
    },
}  # fmt: skip


def test_there_is_a_sample_of_every_methods_params_and_result() -> None:
    wanted = {kind.__name__ for method in METHODS.values() for kind in (method.params, method.result)}
    assert wanted == SAMPLES.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_message_is_the_same_after_a_round_trip(name: str) -> None:
    kind = kind_of(name)
    first = kind.model_validate(SAMPLES[name])
    assert kind.model_validate_json(first.model_dump_json()) == first
    assert kind.model_validate(first.model_dump()) == first


@pytest.mark.requirement("MTH-3")
@pytest.mark.parametrize(
    ("name", "defaults"),
    [
        ("StepParams", {"arguments": {}}),
        ("RewardsParams", {"after": 0}),
        ("ListTasksParams", {"cursor": None, "limit": 100}),
        ("SampleTasksParams", {"count": 1, "seed": None, "strategy": "uniform", "band": [0.2, 0.5]}),
        ("ForkParams", {"step": None}),
        (
            "StartParams",
            {"task": None, "index": None, "seed": None, "count": 1, "limits": None, "tools": None, "secrets": {}},
        ),
        ("StepResult", {"error": None, "reward": None, "metadata": {}, "status": "running", "endReason": None}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_missing_field_counts_as_its_default(name: str, defaults: dict[str, Any]) -> None:
    kind = kind_of(name)
    without = {key: value for key, value in SAMPLES[name].items() if key not in defaults}
    assert kind.model_validate(without) == kind.model_validate({**without, **defaults})


@pytest.mark.parametrize(
    ("name", "sample", "defaults"),
    [
        ("EnvironmentInfo", PUBLISHED, {"forkable": False, "groupScoring": False, "rewardRange": None}),
        ("StartedEpisode", STARTED, {"limits": {}, "play": None, "turns": False}),
        ("EpisodeLimits", {}, dict.fromkeys(LIMITS)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_server_may_leave_out_what_its_modules_would_fill(
    name: str, sample: dict[str, Any], defaults: dict[str, Any]
) -> None:
    kind = kind_of(name)
    without = {key: value for key, value in sample.items() if key not in defaults}
    assert kind.model_validate(without) == kind.model_validate({**without, **defaults})
    required = {field.alias for field in kind.model_fields.values() if field.is_required()}
    assert required <= without.keys()
    assert not required & defaults.keys()


def test_a_started_episode_must_say_whether_it_is_gradable() -> None:
    without = {key: value for key, value in STARTED.items() if key != "gradable"}
    with pytest.raises(ValidationError, match="gradable"):
        episodes.StartedEpisode.model_validate(without)


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_keys_are_camel_case_on_the_wire_and_snake_case_in_python(kind: type[WireModel]) -> None:
    for name, field in kind.model_fields.items():
        assert name == name.lower()
        assert field.alias is not None
        assert "_" not in field.alias
        assert field.alias.lower() == name.replace("_", "")


@pytest.mark.parametrize("name", SAMPLES)
def test_unknown_fields_are_refused_at_every_depth(name: str) -> None:
    kind = kind_of(name)
    for sample in _with_one_more(SAMPLES[name]):
        with pytest.raises(ValidationError, match="extra_forbidden"):
            kind.model_validate(sample)


OPEN = {"fields", "arguments", "inputSchema", "metadata", "secrets", "candidates", "rewards"}


def _with_one_more(value: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{**value, "surprise": 1}]
    for key, inner in value.items():
        if isinstance(inner, dict) and key not in OPEN:
            found += [{**value, key: changed} for changed in _with_one_more(inner)]
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            found += [{**value, key: [changed, *inner[1:]]} for changed in _with_one_more(inner[0])]
    return found


def test_values_are_frozen() -> None:
    result = StepResult(step=1, content=())
    with pytest.raises(ValidationError, match="frozen"):
        result.step = 2  # type: ignore[misc]


@pytest.mark.requirement("MTH-2")
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have_are_refused(number: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        episodes.Outcome(task="t", reward=number, passed=True)
    text = json.dumps({"task": "t", "reward": number, "passed": True})
    with pytest.raises(ValidationError):
        episodes.Outcome.model_validate_json(text)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("StepParams", {"step": 0}),
        ("StepParams", {"key": ""}),
        ("StepParams", {"key": "k" * 129}),
        ("StepParams", {"arguments": []}),
        ("ListTasksParams", {"limit": 0}),
        ("ListTasksParams", {"limit": 1001}),
        ("StartParams", {"count": 0}),
        ("StartParams", {"count": 1025}),
        ("StartParams", {"seed": -1}),
        ("StartParams", {"seed": 2**53}),
        ("StartParams", {"task": "t", "index": 1}),
        ("StartParams", {"limits": {"maxSteps": 0}}),
        ("StartParams", {"limits": {"seconds": 0}}),
        ("GetTaskParams", {"task": "t"}),
        ("GetTaskParams", {"index": None}),
        ("GetTaskParams", {"index": -1}),
        ("StepResult", {"status": "paused"}),
        ("StepResult", {"endReason": "tired"}),
    ],
    ids=str,
)
def test_values_out_of_bounds_are_refused(name: str, change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        getattr(episodes, name).model_validate({**SAMPLES[name], **change})


def test_secrets_and_play_paths_stay_out_of_reprs() -> None:
    params = episodes.StartParams(environment="e", split="s", key="k", secrets={"token": "hunter2"})
    access = episodes.PlayAccess(path="/play/play_secret/mcp", expires_at=1.0)
    assert "hunter2" not in repr(params)
    assert "play_secret" not in repr(access)


@pytest.mark.requirement("CONT-1")
def test_only_text_and_image_blocks_are_content() -> None:
    for block in ({"type": "audio", "data": "", "mimeType": "audio/wav"}, {"text": "x"}, {"type": "text"}):
        with pytest.raises(ValidationError):
            Message.model_validate({"content": [block]})


@pytest.mark.requirement("CONT-1")
@pytest.mark.parametrize("data", ["a", "aGk", "_-8=", "aGk=\n", "ä"])
def test_an_image_must_be_padded_standard_base64(data: str) -> None:
    with pytest.raises(ValidationError):
        ImageBlock(data=data, mime_type="image/png")


@given(st.binary())
def test_an_image_of_bytes_holds_those_bytes(data: bytes) -> None:
    import base64

    assert base64.b64decode(ImageBlock.of(data).data) == data


def test_the_text_of_blocks_names_images_by_their_type() -> None:
    blocks = (TextBlock(text="a"), ImageBlock.of(b"x", "image/jpeg"), TextBlock(text="b"))
    assert text_of(blocks) == "a\n[image: image/jpeg]\nb"


@settings(max_examples=50)
@given(st.text())
@pytest.mark.requirement("CONT-4")
def test_any_text_survives_a_round_trip(text: str) -> None:
    block = TextBlock(text=text)
    assert TextBlock.model_validate_json(block.model_dump_json()).text == text


@pytest.mark.parametrize("reason", [None, *EndReason], ids=str)
def test_what_a_step_says_of_its_end_derives_from_the_end_reason(reason: EndReason | None) -> None:
    result = StepResult(step=1, content=(), end_reason=reason)
    assert result.ended == (reason is not None)
    assert not (result.terminated and result.truncated)
    assert result.terminated == (reason in {EndReason.COMPLETED, EndReason.SUBMITTED})
    limits = {EndReason.STEP_LIMIT, EndReason.TIME_LIMIT, EndReason.OBSERVATION_LIMIT}
    assert result.truncated == (reason in {*limits, EndReason.TRUNCATED, EndReason.CLOSED})


def test_enumerations_are_plain_strings_on_the_wire() -> None:
    result = StepResult(step=1, content=(), status=EpisodeStatus.COMPLETED, end_reason=EndReason.COMPLETED)
    assert json.loads(result.model_dump_json())["endReason"] == "completed"


def test_actions_are_plain_values() -> None:
    assert Call("add", {"a": 1}) == Call("add", {"a": 1})
    assert Call("add").arguments == {}


def test_every_method_is_listed_under_its_own_name_with_the_prefix() -> None:
    assert [method.name for method in METHODS.values()] == list(METHODS)
    assert all(name.startswith(METHOD_PREFIX) for name in METHODS)
    assert len({method.params for method in METHODS.values()}) == len(METHODS)
    assert all(isinstance(method.scope, Scope) and method.summary.endswith(".") for method in METHODS.values())
    assert SUBMIT_TOOL in RESERVED_TOOL_NAMES


def test_reading_rewards_is_the_only_way_to_methods_that_answer_with_nothing_else() -> None:
    for name in ("episodes/rewards", "groups/score"):
        assert METHODS[METHOD_PREFIX + name].scope is Scope.REWARDS_READ


def test_json_rpc_envelopes_are_closed() -> None:
    assert jsonrpc.Request.model_validate({"jsonrpc": "2.0", "id": 1, "method": "m"}).params == {}
    for wrong in (
        {"jsonrpc": "1.0", "id": 1, "method": "m"},
        {"jsonrpc": "2.0", "method": "m"},
        {"jsonrpc": "2.0", "id": None, "method": "m"},
        {"jsonrpc": "2.0", "id": 1, "method": "m", "params": []},
        {"jsonrpc": "2.0", "id": 1, "method": "m", "extra": 0},
    ):
        with pytest.raises(ValidationError):
            jsonrpc.Request.model_validate(wrong)


def test_a_reward_is_part_of_a_step_only_where_there_is_one() -> None:
    assert StepResult(step=1, content=()).reward is None
    assert StepResult(step=1, content=(), reward=Reward.of(0)).reward == Reward(value=0.0)
