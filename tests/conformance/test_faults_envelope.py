"""Faults in what MCP adds to results make exactly the checks fail that name them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from planting import CheckPlanted, Faults, Planted, Rewriting, as_json, assert_caught, frames, on_result, under
from starlette.types import ASGIApp
from worlds import SECRET_REMARK, riddle

from ludus.protocol.identifiers import METHOD_PREFIX
from ludus.server.serving.app import LudusApp

faults = Faults()
ROW = riddle(0)
FIELDS = {"question": ROW.question}


def _results(app: LudusApp, path: str, method: str, change: Callable[[Any], Any]) -> ASGIApp:
    """Change the results of one method at the endpoints under a path."""

    def changed(asked: Any, answer: Any) -> Any:
        if isinstance(asked, dict) and str(asked.get("method")).removeprefix(METHOD_PREFIX) == method:
            if isinstance(answer, dict) and isinstance(answer.get("result"), dict):
                answer["result"] = change(answer["result"])
        return answer

    return Rewriting(app, under(path), answer=as_json(changed))


def _with_meta(meta: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda result: {**result, "_meta": {**result.get("_meta", {}), **meta}}


@faults.caught_by("play/no_reward")
def a_task_row_is_in_meta(app: LudusApp) -> ASGIApp:
    return _results(app, "/play/", "tools/call", _with_meta({"task": {"id": ROW.id, "fields": FIELDS}}))


@faults.caught_by("play/no_reward")
def the_fields_of_the_task_are_in_meta_under_another_name(app: LudusApp) -> ASGIApp:
    rows: list[Any] = []

    def note(params: Any, result: Any) -> Any:
        rows.extend({"difficulty": 1, **one.task.fields} for one in result.episodes)
        return result

    on_result(app, "start", note)
    return _results(app, "/play/", "prompts/get", lambda result: _with_meta({"dev.example/debug": rows})(result))


@faults.caught_by("play/observation")
def the_remarks_of_a_step_are_in_meta_under_another_name(app: LudusApp) -> ASGIApp:
    return _results(app, "/play/", "tools/call", _with_meta({"dev.example/debug": {"note": SECRET_REMARK}}))


@faults.caught_by("play/no_reward")
def the_list_of_tools_names_the_task_in_meta(app: LudusApp) -> ASGIApp:
    return _results(app, "/play/", "tools/list", _with_meta({"dev.example/debug": {"task": 1}}))


@faults.caught_by("play/result_types")
def results_of_agents_have_no_type(app: LudusApp) -> ASGIApp:
    return _results(app, "/play/", "tools/list", _without_type)


@faults.caught_by("mcp/result_types")
def results_of_trainers_have_no_type(app: LudusApp) -> ASGIApp:
    return _results(app, "/mcp", "episodes/get", _without_type)


@faults.caught_by("mcp/test_rows")
def a_test_row_is_in_meta(app: LudusApp) -> ASGIApp:
    return _results(app, "/mcp", "tasks/get", _with_meta({"dev.example/debug": {"task": FIELDS}}))


@faults.caught_by("mcp/hidden_rewards")
def a_grade_is_in_meta(app: LudusApp) -> ASGIApp:
    return _results(app, "/mcp", "episodes/grade", _with_meta({"dev.example/debug": {"reward": 1.0}}))


@faults.caught_by("mcp/secrets")
def a_secret_is_in_meta(app: LudusApp) -> ASGIApp:
    def changed(asked: Any, answer: Any) -> Any:
        params = asked.get("params") if isinstance(asked, dict) else None
        if isinstance(params, dict) and isinstance(params.get("secrets"), dict) and "result" in answer:
            answer["result"]["_meta"] = {"dev.example/debug": list(params["secrets"].values())}
        return answer

    return Rewriting(app, under("/mcp"), answer=as_json(changed))


@faults.caught_by("channel/no_envelope")
def results_on_the_channel_have_a_type(app: LudusApp) -> ASGIApp:
    def sent(scope: Any, message: Any) -> Any:
        if message.get("text") is None:
            return message
        replies = json.loads(message["text"])
        for reply in replies if isinstance(replies, list) else [replies]:
            if "result" in reply:
                reply["result"]["resultType"] = "complete"
        return {**message, "text": json.dumps(replies)}

    return frames(app, sent=sent)


@faults.caught_by("channel/no_envelope")
def the_channel_ignores_what_mcp_adds_to_params(app: LudusApp) -> ASGIApp:
    def received(text: str) -> str:
        try:
            request = json.loads(text)
        except ValueError:
            return text
        if isinstance(request, dict) and isinstance(request.get("params"), dict) and "_meta" in request["params"]:
            del request["params"]["_meta"]
            return json.dumps(request)
        return text

    return frames(app, received=received)


def _without_type(result: Any) -> Any:
    return {key: value for key, value in result.items() if key != "resultType"}


@pytest.mark.suite("planted-faults", first=3)
@pytest.mark.parametrize("fault", faults.all)
async def test_the_checks_that_name_a_fault_find_it(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault, fault.checks))


@pytest.mark.parametrize("fault", faults.sampled)
async def test_no_other_check_is_failed_by_a_fault(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault))
