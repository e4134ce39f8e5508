"""Each fault of the ORS wire makes exactly the checks fail that name it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from planting import CheckPlanted, Faults, Planted, Rewriting, as_json, assert_caught, on_ors
from starlette.types import ASGIApp, Receive, Scope, Send
from worlds import Playground

from ludus.server.serving.app import LudusApp

faults = Faults()


def _text(app: LudusApp, change: Callable[[bytes, bytes], bytes]) -> ASGIApp:
    return Rewriting(app, on_ors, answer=change)


@faults.caught_by("ors/large_results")
def chunks_begin_with_white_space(app: LudusApp) -> ASGIApp:
    return _text(app, lambda asked, answer: answer.replace(b"data: \\u0020", b"data:  "))


@faults.caught_by("ors/large_results")
def white_space_at_a_cut_is_lost(app: LudusApp) -> ASGIApp:
    return _text(app, lambda asked, answer: answer.replace(b"data: \\u0020", b"data: "))


@faults.caught_by("ors/foreign_task_id")
def a_task_id_is_good_in_every_session(app: LudusApp) -> ASGIApp:
    known: dict[str, bytes] = {}

    def change(asked: bytes, answer: bytes) -> bytes:
        if answer.startswith(b"event: task_id") and b"event: end" in answer:
            known[answer.split(b"\r\n")[1].removeprefix(b"data: ").decode()] = answer
        if b'"task_id"' in asked and b"event: error" in answer:
            return known.get(json.loads(asked)["task_id"], answer)
        return answer

    return _text(app, change)


@faults.caught_by("ors/resume", "ors/foreign_task_id")
def a_task_id_is_ignored(app: LudusApp) -> ASGIApp:
    def request(body: bytes) -> bytes:
        return json.dumps({k: v for k, v in json.loads(body).items() if k != "task_id"}).encode() if body else body

    return Rewriting(app, on_ors, request=request)


@faults.caught_by("ors/equal_calls")
def equal_calls_are_taken_for_repeats(app: LudusApp) -> ASGIApp:
    first: dict[tuple[bytes, bytes], bytes] = {}

    def change(asked: bytes, answer: bytes) -> bytes:
        if not answer.startswith(b"event: task_id"):
            return answer
        task_id = answer.split(b"\r\n")[1]
        return first.setdefault((asked, task_id[:-8]), answer)  # its end counts the calls of the session

    return _text(app, change)


class Beside(Playground):
    """Another environment of the same server."""


@faults.caught_by("ors/other_environment", beside=(Beside,))
def a_session_is_served_under_every_path(app: LudusApp) -> ASGIApp:
    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/beside/"):
            scope = {**scope, "path": scope["path"].removeprefix("/beside")}
        await app(scope, receive, send)

    return served


@faults.caught_by("ors/calls")
def a_reward_is_a_text(app: LudusApp) -> ASGIApp:
    return _text(app, lambda asked, answer: answer.replace(b'"reward":0.25', b'"reward":"0.25"'))


@faults.caught_by("ors/calls")
def finished_is_missing(app: LudusApp) -> ASGIApp:
    def change(asked: bytes, answer: bytes) -> bytes:
        return answer.replace(b',"finished":false', b"")

    return _text(app, change)


@faults.caught_by("ors/refusals")
def a_wrong_body_is_a_bad_request(app: LudusApp) -> ASGIApp:
    return Rewriting(app, on_ors, status=lambda status: 400 if status == 422 else status)


@faults.caught_by("ors/api_key")
def an_api_key_is_not_taken(app: LudusApp) -> ASGIApp:
    def headers(given: dict[bytes, bytes]) -> dict[bytes, bytes]:
        return {name: value for name, value in given.items() if name != b"x-api-key"}

    return Rewriting(app, on_ors, headers=headers)


@faults.caught_by("ors/mistakes")
def an_unknown_tool_is_told_in_other_words(app: LudusApp) -> ASGIApp:
    return _text(app, lambda asked, answer: answer.replace(b"is not a valid tool", b"does not exist"))


@faults.caught_by("ors/final_answer")
def there_is_no_way_to_answer(app: LudusApp) -> ASGIApp:
    def change(asked: Any, answer: Any) -> Any:
        if isinstance(answer, dict) and "tools" in answer:
            answer["tools"] = [tool for tool in answer["tools"] if tool["name"] != "submit_answer"]
        return answer

    return _text(app, as_json(change))


@faults.caught_by("ors/environments")
def no_environment_is_listed(app: LudusApp) -> ASGIApp:
    return _text(app, as_json(lambda asked, answer: [] if answer == ["playground"] else answer))


@faults.caught_by("ors/tasks")
def tasks_are_counted_wrongly(app: LudusApp) -> ASGIApp:
    return _text(app, lambda asked, answer: answer.replace(b'"num_tasks":12', b'"num_tasks":13'))


@faults.caught_by("ors/tools_and_splits")
def a_tool_has_mcps_key(app: LudusApp) -> ASGIApp:
    def change(asked: bytes, answer: bytes) -> bytes:
        return answer.replace(b'"input_schema"', b'"inputSchema"')

    return Rewriting(app, lambda path: path.endswith("/tools"), answer=change)


@faults.caught_by("ors/session")
def a_deleted_session_lives_on(app: LudusApp) -> ASGIApp:
    return Rewriting(app, lambda path: path == "/delete", headers=_nobody)


def _nobody(given: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {**given, b"x-session-id": b"nobody"}


@faults.caught_by("ors/other_principal")
def sessions_belong_to_every_client(app: LudusApp) -> ASGIApp:
    owners: dict[bytes, bytes] = {}

    def headers(given: dict[bytes, bytes]) -> dict[bytes, bytes]:
        sid = given.get(b"x-session-id")
        token = given.get(b"authorization", b"")
        if sid is None or not token or b"wrong" in token:
            return given
        return {**given, b"authorization": owners.setdefault(sid, token)}

    return Rewriting(app, on_ors, headers=headers)


@faults.caught_by("ors/extension")
def every_client_gets_the_fields_that_ors_does_not_have(app: LudusApp) -> ASGIApp:
    return Rewriting(app, lambda path: path.endswith("/tools"), headers=_asking)


def _asking(given: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {**given, b"ludus-extension": b"0.2"}


@faults.caught_by("ors/secrets")
def a_wrong_body_is_sent_back(app: LudusApp) -> ASGIApp:
    def change(asked: bytes, answer: bytes) -> bytes:
        return answer[:-1] + b',"body":' + asked + b"}" if answer.startswith(b'{"detail":[') else answer

    return _text(app, change)


@pytest.mark.parametrize("fault", faults.all)
async def test_the_checks_that_name_a_fault_find_it(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault, fault.checks))


@pytest.mark.parametrize("fault", faults.sampled)
async def test_no_other_check_is_failed_by_a_fault(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault))
