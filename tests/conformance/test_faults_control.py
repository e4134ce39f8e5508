"""Each fault of a control wire makes exactly the checks fail that name it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from planting import (
    CheckPlanted,
    Faults,
    Handler,
    Planted,
    Rewriting,
    assert_caught,
    frames,
    on_host,
    on_params,
    on_result,
    under,
)
from starlette.types import ASGIApp
from worlds import SECRET_ANSWER, Playground

from ludus.protocol.episodes import GradeResult, TaskRow
from ludus.protocol.errors import EpisodeEnded, EpisodeNotFound, Unauthenticated
from ludus.protocol.rewards import Reward, RewardEntry
from ludus.server import Task
from ludus.server.auth import CapabilitySigner
from ludus.server.auth.principal import Principal
from ludus.server.serving.app import LudusApp

faults = Faults()


# ── exactly once ───────────────────────────────────────────────────────────────────────────────────────────────────


@faults.caught_by("channel/start_once", "mcp/start_once", "mcp/across_wires")
def a_start_sent_again_starts_again(app: LudusApp) -> None:
    seen: Counter[str] = Counter()

    def change(params: Any) -> Any:
        seen[params.model_dump_json()] += 1
        return params.model_copy(update={"key": f"{params.key}/{seen[params.model_dump_json()]}"})

    on_params(app, "start", change)


@faults.caught_by("channel/start_key")
def a_start_key_may_be_reused(app: LudusApp) -> None:
    def change(params: Any) -> Any:
        digest = hashlib.sha256(params.model_dump_json().encode()).hexdigest()
        return params.model_copy(update={"key": digest})

    on_params(app, "start", change)


def _renumber(app: LudusApp, when: Callable[[Any, Any], bool]) -> None:
    """Let some steps run as new ones, whatever their number and key."""

    host: Any = app.context.host
    submit = host.submit

    def changed(params: Any, principal: Any) -> Any:
        try:
            episode = host.store.get_owned(params.episode, principal)
        except EpisodeNotFound:
            return submit(params, principal)
        if when(episode, params):
            params = params.model_copy(
                update={"step": episode.last_step + 1, "key": f"{params.key}/{episode.last_step}"}
            )
        return submit(params, principal)

    host.submit = changed


def _same(episode: Any, params: Any) -> bool:
    record = (episode.keys or {}).get(params.key)
    asked = (params.tool, params.arguments, params.step)
    return record is not None and (record.tool, record.arguments, record.number) == asked


@faults.caught_by(
    "channel/step_once", "channel/step_again_after_the_end", "channel/lost_connection", "channel/turn_key",
    "mcp/step_once", "mcp/step_again_after_the_end", "mcp/across_wires", "mcp/turn_key",
)  # fmt: skip
def a_step_sent_again_runs_again(app: LudusApp) -> None:
    _renumber(app, _same)


@faults.caught_by("channel/gaps")
def a_step_may_skip_ahead(app: LudusApp) -> None:
    _renumber(
        app, lambda episode, params: params.key not in (episode.keys or {}) and params.step > episode.last_step + 1
    )


@faults.caught_by("mcp/old_numbers")
def a_number_may_be_used_again(app: LudusApp) -> None:
    _renumber(
        app,
        lambda episode, params: (
            params.key not in (episode.keys or {}) and params.step <= episode.last_step and episode.end_reason is None
        ),
    )


@faults.caught_by("channel/step_key")
def a_step_key_may_be_reused(app: LudusApp) -> None:
    _renumber(app, lambda episode, params: params.key in (episode.keys or {}) and not _same(episode, params))


def _other_turns(app: LudusApp, turn_of: Callable[[Any, Any], Any]) -> None:
    """Let steps belong to other turns than they say: to what `turn_of` makes of the earlier record and the params."""
    host: Any = app.context.host
    submit = host.submit

    def changed(params: Any, principal: Any) -> Any:
        keys = host.store.get_owned(params.episode, principal).keys or {}
        return submit(params.model_copy(update={"turn": turn_of(keys.get(params.key), params)}), principal)

    host.submit = changed


@faults.caught_by("channel/turn_key")
def a_key_may_be_reused_for_another_turn(app: LudusApp) -> None:
    _other_turns(app, lambda record, params: params.turn if record is None else record.turn)


@faults.caught_by("mcp/turns_over")
def a_turn_that_is_over_takes_calls(app: LudusApp) -> None:
    def turn_of(record: Any, params: Any) -> Any:
        over = record is None and params.turn is not None and params.turn.number < 3 and params.step > 1
        return None if over else params.turn

    _other_turns(app, turn_of)


@faults.caught_by("channel/grade_once")
def a_grade_sent_again_is_graded_again(app: LudusApp) -> None:
    seen: Counter[str] = Counter()

    def change(params: Any, result: Any) -> Any:
        seen[params.key] += 1
        if seen[params.key] > 1:
            episode = app.context.host.store.find(params.episode)
            episode.entries = [*(episode.entries or ()), RewardEntry(step=0, source="grade", reward=result.reward)]
        return result

    on_result(app, "grade", change)


@faults.caught_by("channel/after_the_end")
def a_second_answer_is_taken_after_the_end(app: LudusApp) -> None:
    def wrap(grade: Handler) -> Handler:
        async def lenient(params: Any, principal: Any) -> Any:
            try:
                return await grade(params, principal)
            except EpisodeEnded:
                found = await app.context.host.get_episode(params, principal)
                return GradeResult(reward=None, info=found.info)

        return lenient

    on_host(app, "grade", wrap)


# ── rewards ────────────────────────────────────────────────────────────────────────────────────────────────────────


@faults.caught_by("channel/closed", "mcp/closed")
def a_closed_episode_loses_what_it_earned(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        if result.info.end_reason != "closed" or result.info.reward is None:
            return result
        return result.model_copy(update={"info": result.info.model_copy(update={"reward": lost})})

    lost = Reward.unscored("it was closed")
    on_result(app, "close", change)


@faults.caught_by("channel/time_limits")
def an_expired_episode_is_scored_0(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        if result.info.end_reason != "expired" or result.info.reward is None:
            return result
        return result.model_copy(update={"info": result.info.model_copy(update={"reward": Reward.of(0.0)})})

    on_result(app, "get_episode", change)


def _total(app: LudusApp, change: Callable[[Reward], Reward]) -> None:
    on_result(app, "rewards", lambda params, result: result.model_copy(update={"total": change(result.total)}))


@faults.caught_by("channel/total", "channel/closed")
def the_total_is_not_the_sum(app: LudusApp) -> None:
    _total(app, lambda total: total.model_copy(update={"value": None if total.value is None else 2 * total.value}))


@faults.caught_by("mcp/components")
def the_total_has_no_components(app: LudusApp) -> None:
    _total(app, lambda total: total.model_copy(update={"components": {}}))


@faults.caught_by("channel/after")
def entries_read_before_are_returned_again(app: LudusApp) -> None:
    on_params(app, "rewards", lambda params: params.model_copy(update={"after": 0}))


@faults.caught_by("channel/log", "channel/grade_entry")
def entries_name_the_step_after_theirs(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        entries = tuple(one.model_copy(update={"step": one.step + 1}) for one in result.entries)
        return result.model_copy(update={"entries": entries})

    on_result(app, "rewards", change)


# ── episodes and tasks ─────────────────────────────────────────────────────────────────────────────────────────────


@faults.caught_by("channel/seeds", "channel/great_seeds", "mcp/seeds", "mcp/great_seeds")
def the_seed_is_ignored_but_returned(app: LudusApp) -> None:
    wanted: dict[str, int] = {}
    drawn = iter(range(10**6))

    def ignore(params: Any) -> Any:
        if params.seed is None:
            return params
        wanted[params.key] = params.seed
        return params.model_copy(update={"seed": 1000 + next(drawn)})

    def tell(params: Any, result: Any) -> Any:
        seed = wanted.get(params.key)
        if seed is None:
            return result
        told = tuple(one.model_copy(update={"seed": seed}) for one in result.episodes)
        return result.model_copy(update={"episodes": told})

    on_params(app, "start", ignore)
    on_result(app, "start", tell)


@faults.caught_by("channel/chosen_tools")
def every_tool_is_there_whatever_was_chosen(app: LudusApp) -> None:
    def change(params: Any) -> Any:
        known = {spec.name for spec in app.context.host.catalog["playground"].info.tools}
        return params if set(params.tools or ()) - known else params.model_copy(update={"tools": None})

    on_params(app, "start", change)


@faults.caught_by(
    "channel/limits",
    "channel/step_limit",
    "channel/time_limits",
    "channel/observation_cut",
    "channel/observation_total",
)
def limits_of_the_client_are_ignored(app: LudusApp) -> None:
    on_params(app, "start", lambda params: params.model_copy(update={"limits": None}))


@faults.caught_by("channel/forks")
def a_fork_stands_at_the_end_whatever_was_asked(app: LudusApp) -> None:
    def change(params: Any) -> Any:
        return params.model_copy(update={"step": None}) if params.step == 1 else params

    on_params(app, "fork", change)


class OpenRiddle(Task):
    """A riddle whose author forgot that the answer is private."""

    question: str
    answer: str


class Revealing(Playground):
    """The playground, with answers that every client can read."""

    name = "playground"
    splits = {
        "train": [OpenRiddle(id=f"o-{n}", question="?", answer=f"{SECRET_ANSWER}-{n}") for n in range(12)],
        "test": [OpenRiddle(id="o-t", question="?", answer=SECRET_ANSWER)],
    }


@faults.caught_by("channel/private", "mcp/private", "ors/private", environment=Revealing)
def task_rows_hold_a_private_field(app: LudusApp) -> None:
    pass


@faults.caught_by("channel/test_rows", "mcp/test_rows", "ors/test_tasks")
def rows_of_a_test_split_hold_their_fields(app: LudusApp) -> None:
    def tell(row: TaskRow) -> TaskRow:
        return row.model_copy(update={"fields": {"question": "Say it."}}) if row.split == "test" else row

    def listed(params: Any, result: Any) -> Any:
        return result.model_copy(update={"tasks": tuple(tell(row) for row in result.tasks)})

    on_result(app, "list_tasks", listed)
    on_result(app, "get_task", lambda params, result: result.model_copy(update={"task": tell(result.task)}))


@faults.caught_by("channel/pages")
def the_last_page_is_lost(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        return result.model_copy(update={"next_cursor": None}) if params.limit == 7 else result

    on_result(app, "list_tasks", change)


@faults.caught_by("mcp/samples")
def a_sample_ignores_its_seed(app: LudusApp) -> None:
    drawn = iter(range(10**6))
    on_params(app, "sample_tasks", lambda params: params.model_copy(update={"seed": next(drawn)}))


@faults.caught_by("channel/unknown_names", "channel/known_codes")
def an_unknown_episode_gets_a_code_of_no_table(app: LudusApp) -> None:
    class Strange(EpisodeNotFound):
        code = 4999

    def wrap(get: Handler) -> Handler:
        async def strange(params: Any, principal: Any) -> Any:
            try:
                return await get(params, principal)
            except EpisodeNotFound as error:
                raise (Strange if principal.name == "token" else EpisodeNotFound)(error.message) from None

        return strange

    on_host(app, "get_episode", wrap)


@faults.caught_by("channel/messages")
def refusals_do_not_say_what_they_are_about(app: LudusApp) -> None:
    def wrap(get: Handler) -> Handler:
        async def vague(params: Any, principal: Any) -> Any:
            try:
                return await get(params, principal)
            except EpisodeNotFound:
                raise EpisodeNotFound("not found") from None

        return vague

    on_host(app, "get_episode", wrap)


def _drop_unknown(text: str) -> str:
    request = json.loads(text) if text.startswith("{") and text.endswith("}") else None
    if not isinstance(request, dict) or not isinstance(request.get("params"), dict):
        return text
    for part in (request["params"], request["params"].get("limits")):
        if isinstance(part, dict):
            part.pop("fieldOfTheFuture", None)
            part.pop("limitOfTheFuture", None)
    return json.dumps(request)


@faults.caught_by("channel/unknown_fields", "channel/unknown_limit")
def unknown_fields_are_accepted(app: LudusApp) -> ASGIApp:
    return frames(app, received=_drop_unknown)


# ── rights ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@faults.caught_by("channel/other_principal", "mcp/other_principal")
def episodes_of_other_principals_are_open(app: LudusApp) -> None:
    host: Any = app.context.host

    def admitted(principal: Principal) -> Principal:
        return replace(principal, scopes=principal.scopes | {"admin"}) if principal.may("rewards:read") else principal

    for method in ("get_episode", "rewards", "fork", "grade", "close", "score_group"):

        def wrap(handler: Handler) -> Handler:
            async def as_admin(params: Any, principal: Principal) -> Any:
                return await handler(params, admitted(principal))

            return as_admin

        on_host(app, method, wrap)
    submit = host.submit
    host.submit = lambda params, principal: submit(params, admitted(principal))


def _lenient(app: LudusApp, change: Callable[[str, Principal | None], Principal | None]) -> None:
    store: Any = app.context.tokens
    authenticate = store.authenticate

    def lenient(token: str) -> Principal:
        try:
            found = authenticate(token)
        except Unauthenticated:
            found = None
        found = change(token, found)
        if found is None:
            raise Unauthenticated("this token is not known to the server")
        return found

    store.authenticate = lenient


@faults.caught_by("channel/wrong_token", "mcp/wrong_token", "play/capability_as_token", "ors/no_token")
def any_token_will_do(app: LudusApp) -> None:
    _lenient(app, lambda token, found: found or Principal("guest", Principal.open().scopes))


@faults.caught_by("play/capability_as_token")
def a_capability_is_taken_for_a_token(app: LudusApp) -> None:
    signer = app.context.signer
    assert isinstance(signer, CapabilitySigner)

    def change(token: str, found: Principal | None) -> Principal | None:
        return found or (Principal.open() if token.startswith("play_") else None)

    _lenient(app, change)


@faults.caught_by("channel/no_token", "channel/upgrade_token", "mcp/no_token")
def no_token_is_as_good_as_one(app: LudusApp) -> ASGIApp:
    _lenient(app, lambda token, found: Principal.open() if token == "anybody" else found)

    def headers(given: dict[bytes, bytes]) -> dict[bytes, bytes]:
        return {b"authorization": b"Bearer anybody", **given}

    return Rewriting(app, under("/mcp", "/channel"), headers=headers)


@faults.caught_by("channel/scopes", "channel/hidden_rewards", "channel/test_split", "ors/scopes")
def scopes_are_ignored(app: LudusApp) -> None:
    def change(token: str, found: Principal | None) -> Principal | None:
        return found and (Principal(found.name, Principal.open().scopes - {"admin"}))

    _lenient(app, change)


@faults.caught_by("mcp/hidden_rewards")
def steps_show_rewards_to_every_token(app: LudusApp) -> None:
    def wrap(step: Handler) -> Handler:
        async def telling(params: Any, principal: Principal) -> Any:
            return await step(params, replace(principal, scopes=principal.scopes | {"rewards:read"}))

        return telling

    on_host(app, "step", wrap)


# ── the channel ────────────────────────────────────────────────────────────────────────────────────────────────────


@faults.caught_by("channel/grade_waits")
def a_grade_overtakes_the_steps_before_it(app: LudusApp) -> ASGIApp:
    def received(text: str) -> str:
        try:
            batch = json.loads(text)
        except ValueError:
            return text
        if not isinstance(batch, list) or not all(isinstance(one, dict) for one in batch):
            return text
        return json.dumps(sorted(batch, key=lambda one: not str(one.get("method")).endswith("/grade")))

    return frames(app, received=received)


@faults.caught_by("channel/binary")
def a_binary_frame_is_read_like_text(app: LudusApp) -> ASGIApp:
    async def reading(scope: Any, receive: Any, send: Any) -> None:
        async def as_text() -> Any:
            message = await receive()
            if message.get("bytes") is not None:
                return {"type": message["type"], "text": message["bytes"].decode()}
            return message

        await app(scope, as_text, send)

    return reading


@faults.caught_by("channel/batch", seconds=2.0)
def a_batch_with_a_wrong_request_is_dropped(app: LudusApp) -> ASGIApp:
    def received(text: str) -> str:
        if not text.startswith("[{"):
            return text
        batch = json.loads(text)
        wrong = [item for item in batch if not isinstance(item, dict)]
        return json.dumps(wrong) if wrong else text

    return frames(app, received=received)


@faults.caught_by("channel/order", "channel/grade_waits")
def a_batch_runs_backwards(app: LudusApp) -> ASGIApp:
    return frames(app, received=lambda text: json.dumps(json.loads(text)[::-1]) if text.startswith("[{") else text)


@faults.caught_by("channel/subprotocol")
def the_subprotocol_is_not_asked_for(app: LudusApp) -> ASGIApp:
    return frames(app, scope_of=lambda scope: {**scope, "subprotocols": ["ludus.channel.v0.2"]})


@faults.caught_by("channel/upgrade")
def the_largest_frame_is_not_announced(app: LudusApp) -> ASGIApp:
    def sent(scope: Any, message: Any) -> Any:
        return {**message, "headers": []} if message["type"] == "websocket.accept" else message

    return frames(app, sent=sent)


@faults.caught_by("channel/malformed", "channel/stays_open")
def a_frame_that_is_no_json_ends_the_connection(app: LudusApp) -> ASGIApp:
    return frames(app, received=lambda text: None if text == "{" else text)


@faults.caught_by("channel/notification")
def a_request_without_an_id_runs(app: LudusApp) -> ASGIApp:
    def received(text: str) -> str:
        if text.startswith('{"jsonrpc"') and '"id"' not in text:
            return json.dumps({**json.loads(text), "id": 99})
        return text

    return frames(app, received=received)


@faults.caught_by("channel/request_ids")
def any_id_will_do(app: LudusApp) -> ASGIApp:
    def received(text: str) -> str:
        request = json.loads(text) if text.startswith('{"') else None
        identifier = request.get("id") if isinstance(request, dict) else None
        if isinstance(request, dict) and isinstance(identifier, str) and len(identifier) > 128:
            return json.dumps({**request, "id": identifier[:128]})
        return text

    return frames(app, received=received)


# ── the boundary ───────────────────────────────────────────────────────────────────────────────────────────────────


@faults.caught_by("channel/origin", "mcp/origin", "play/origin", "ors/origin")
def any_origin_may_ask(app: LudusApp) -> ASGIApp:
    def headers(given: dict[bytes, bytes]) -> dict[bytes, bytes]:
        return {name: value for name, value in given.items() if name != b"origin"}

    return Rewriting(app, under("/"), headers=headers)


@faults.caught_by("mcp/cors", "play/cors", "ors/cors")
def any_page_may_read(app: LudusApp) -> ASGIApp:
    return Rewriting(app, under("/"), answer_headers={b"access-control-allow-origin": b"*"})


@faults.caught_by("mcp/other_host", "play/other_host", "ors/other_host", tokens=False)
def any_host_is_meant(app: LudusApp) -> ASGIApp:
    return Rewriting(app, under("/"), headers=lambda given: {**given, b"host": b"localhost"})


@faults.caught_by("mcp/large_body")
def a_body_without_end_is_a_bad_request(app: LudusApp) -> ASGIApp:
    return Rewriting(app, under("/mcp"), status=lambda status: 400 if status == 413 else status)


@pytest.mark.suite("planted-faults", first=2)
@pytest.mark.parametrize("fault", faults.all)
async def test_the_checks_that_name_a_fault_find_it(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault, fault.checks))


@pytest.mark.suite("planted-faults")
@pytest.mark.parametrize("fault", faults.sampled)
async def test_no_other_check_is_failed_by_a_fault(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault))
