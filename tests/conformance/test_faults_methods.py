"""Each fault in the answers of the extension's methods makes exactly the checks fail that name it."""

from __future__ import annotations

import itertools
import json
import re
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
    as_json,
    assert_caught,
    frames,
    on_host,
    on_params,
    on_result,
    under,
)
from starlette.types import ASGIApp

from ludus.protocol.errors import EpisodeEnded, KeyConflict, LudusError, TaskNotFound
from ludus.protocol.lifecycle import EndReason, EpisodeStatus
from ludus.server.serving.app import LudusApp

faults = Faults()


def _received(app: LudusApp, change: Callable[[str, dict[str, Any]], None]) -> ASGIApp:
    """Change the method name's params before the server reads them: `change(method, params)`."""

    def received(text: str) -> str:
        request = json.loads(text) if text.startswith('{"') and text.endswith("}") else None
        if not isinstance(request, dict) or not isinstance(request.get("params"), dict):
            return text
        change(str(request.get("method")).rpartition("/")[2], request["params"])
        return json.dumps(request)

    return frames(app, received=received)


def _started(app: LudusApp, change: Callable[[Any, int, Any], Any]) -> None:
    """Change the episodes in the result of a start: `change(params, place in the group, episode)`."""

    def changed(params: Any, result: Any) -> Any:
        episodes = tuple(change(params, place, one) for place, one in enumerate(result.episodes))
        return result.model_copy(update={"episodes": episodes})

    on_result(app, "start", changed)


# ── environments and tasks ─────────────────────────────────────────────────────────────────────────────────────────


@faults.caught_by("channel/splits", "mcp/splits")
def a_split_is_not_listed(app: LudusApp) -> None:
    on_result(app, "list_splits", lambda _, result: result.model_copy(update={"splits": result.splits[:-1]}))


@faults.caught_by("channel/one_task")
def a_task_by_its_id_has_another_index(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        moved = result.task.model_copy(update={"index": result.task.index + 1})
        return result if params.task is None else result.model_copy(update={"task": moved})

    on_result(app, "get_task", change)


@faults.caught_by("channel/endless")
def an_endless_split_draws_a_new_task_each_time(app: LudusApp) -> None:
    drawn = itertools.count()

    def change(params: Any, result: Any) -> Any:
        if params.split != "endless":
            return result
        other = result.task.model_copy(update={"id": f"{result.task.id}-{next(drawn)}"})
        return result.model_copy(update={"task": other})

    on_result(app, "get_task", change)


@faults.caught_by("channel/outcomes")
def known_outcomes_of_a_refused_report_are_recorded(app: LudusApp) -> None:
    def wrap(report: Handler) -> Handler:
        async def recording(params: Any, principal: Any) -> Any:
            try:
                return await report(params, principal)
            except TaskNotFound:
                known = {"outcomes": params.outcomes[:1], "key": f"{params.key}/known"}
                await report(params.model_copy(update=known), principal)
                raise

        return recording

    on_host(app, "report_outcomes", wrap)


@faults.caught_by("channel/one_choice")
def of_two_choices_of_a_task_the_first_counts(app: LudusApp) -> ASGIApp:
    def change(method: str, params: dict[str, Any]) -> None:
        if "task" in params:
            params.pop("index", None)

    return _received(app, change)


@faults.caught_by("channel/named_task")
def an_episode_by_index_has_the_task_after_it(app: LudusApp) -> None:
    on_params(
        app,
        "start",
        lambda params: params if params.index is None else params.model_copy(update={"index": params.index + 1}),
    )


# ── invalid requests ───────────────────────────────────────────────────────────────────────────────────────────────


@faults.caught_by("channel/unknown_methods")
def an_unknown_method_is_refused_as_wrong_params(app: LudusApp) -> ASGIApp:
    def sent(scope: Any, message: Any) -> Any:
        return {**message, "text": message["text"].replace("-32601", "-32602")} if message.get("text") else message

    return frames(app, sent=sent)


@faults.caught_by("channel/wrong_params")
def a_limit_of_0_is_no_limit(app: LudusApp) -> ASGIApp:
    def change(method: str, params: dict[str, Any]) -> None:
        if params.get("limit") == 0:
            del params["limit"]

    return _received(app, change)


@faults.caught_by("channel/not_finite")
def infinity_is_read_as_0(app: LudusApp) -> ASGIApp:
    return frames(app, received=lambda text: text.replace(": Infinity", ": 0").replace(":Infinity", ":0"))


@faults.caught_by("channel/no_effect")
def a_refused_start_uses_up_its_key(app: LudusApp) -> None:
    used: set[str] = set()

    def wrap(start: Handler) -> Handler:
        async def strict(params: Any, principal: Any) -> Any:
            if params.key in used:
                raise KeyConflict(f"the key {params.key!r} belongs to an earlier start")
            try:
                return await start(params, principal)
            except LudusError:
                used.add(params.key)
                raise

        return strict

    on_host(app, "start", wrap)


# ── episodes ───────────────────────────────────────────────────────────────────────────────────────────────────────


@faults.caught_by("channel/starting")
def an_episode_has_no_prompt(app: LudusApp) -> None:
    _started(app, lambda params, place, one: one.model_copy(update={"prompt": ()}))


@faults.caught_by("channel/groups")
def each_episode_of_a_group_has_a_seed_of_its_own(app: LudusApp) -> None:
    _started(app, lambda params, place, one: one.model_copy(update={"seed": one.seed + place}))


@faults.caught_by("channel/ids", "channel/other_principal")
def ids_are_counted_and_open_to_everybody(app: LudusApp) -> ASGIApp:
    def wrap(get: Handler) -> Handler:
        async def as_admin(params: Any, principal: Any) -> Any:
            trusted = principal.may("rewards:read")
            return await get(params, replace(principal, scopes=principal.scopes | {"admin"}) if trusted else principal)

        return as_admin

    on_host(app, "get_episode", wrap)
    known: dict[str, str] = {}
    counted: dict[str, str] = {}

    def hide(match: re.Match[str]) -> str:
        if match[0] not in known:
            known[match[0]] = f"{match[0][:2]}{len(known):016}"
            counted[known[match[0]]] = match[0]
        return known[match[0]]

    def sent(scope: Any, message: Any) -> Any:
        text = message.get("text")
        return {**message, "text": re.sub(r"(?<=\")[eg]_[\w-]{16}(?=\")", hide, text)} if text else message

    def received(text: str) -> str:
        return re.sub(r"(?<=\")[eg]_\d{16}(?=\")", lambda match: counted.get(match[0], match[0]), text)

    return frames(app, received=received, sent=sent)


@faults.caught_by("mcp/results", "mcp/across_wires")
def results_have_the_number_of_the_step_after_theirs(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        return result if result.error is not None else result.model_copy(update={"step": result.step + 1})

    on_result(app, "step", change)


@faults.caught_by("channel/great_seeds")
def seeds_have_32_bits(app: LudusApp) -> None:
    def change(params: Any) -> Any:
        return params if params.seed is None else params.model_copy(update={"seed": params.seed % 2**32})

    on_params(app, "start", change)


def _without_limit(app: LudusApp, name: str) -> None:
    def change(params: Any) -> Any:
        limits = params.limits and params.limits.model_copy(update={name: None})
        return params.model_copy(update={"limits": limits})

    on_params(app, "start", change)


@faults.caught_by("channel/observation_cut")
def observations_are_never_cut_off(app: LudusApp) -> None:
    _without_limit(app, "observation_chars")


@faults.caught_by("channel/observation_total")
def observations_may_add_up_to_anything(app: LudusApp) -> None:
    _without_limit(app, "total_observation_chars")


@faults.caught_by("channel/kept_alive")
def reading_an_episode_does_not_postpone_its_expiry(app: LudusApp) -> None:
    host: Any = app.context.host

    def wrap(get: Handler) -> Handler:
        async def reading(params: Any, principal: Any) -> Any:
            episode = host.store._living.get(params.episode)
            used = episode and episode.used
            result = await get(params, principal)
            if episode is not None:
                episode.used = used
            return result

        return reading

    on_host(app, "get_episode", wrap)


@faults.caught_by("channel/outcomes")
def a_repeated_report_is_recorded_again(app: LudusApp) -> None:
    fresh = itertools.count()
    on_params(
        app, "report_outcomes", lambda params: params.model_copy(update={"key": f"{params.key}/{next(fresh)}"[-128:]})
    )


@faults.caught_by("channel/grade_entry")
def the_entry_of_a_grade_has_the_step_0(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        entries = tuple(one.model_copy(update={"step": 0}) if one.source == "grade" else one for one in result.entries)
        return result.model_copy(update={"entries": entries})

    on_result(app, "rewards", change)


@faults.caught_by("channel/grading")
def a_graded_episode_says_that_its_task_is_done(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        return result.model_copy(update={"info": result.info.model_copy(update={"end_reason": EndReason.COMPLETED})})

    on_result(app, "grade", change)


@faults.caught_by("channel/closing")
def a_second_close_is_refused(app: LudusApp) -> None:
    closed: set[str] = set()

    def wrap(close: Handler) -> Handler:
        async def once(params: Any, principal: Any) -> Any:
            if params.episode in closed:
                raise EpisodeEnded(f"the episode {params.episode} is closed")
            result = await close(params, principal)
            closed.add(params.episode)
            return result

        return once

    on_host(app, "close", wrap)


@faults.caught_by("channel/closing_late")
def closing_changes_how_an_episode_ended(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        end = {"status": EpisodeStatus.TRUNCATED, "end_reason": EndReason.CLOSED}
        return result.model_copy(update={"info": result.info.model_copy(update=end)})

    on_result(app, "close", change)


@faults.caught_by("channel/grading")
def a_started_episode_is_not_gradable_and_is_graded(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        ungraded = tuple(one.model_copy(update={"gradable": False}) for one in result.episodes)
        return result.model_copy(update={"episodes": ungraded})

    on_result(app, "start", change)


@faults.caught_by("channel/group_scores")
def one_candidate_of_a_group_gets_no_score(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        return result.model_copy(update={"rewards": dict(list(result.rewards.items())[1:])})

    on_result(app, "score_group", change)


# ── keys ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@faults.caught_by("channel/keys_apart")
def a_step_key_counts_in_every_episode(app: LudusApp) -> None:
    host: Any = app.context.host
    submit = host.submit
    owner: dict[str, str] = {}

    def shared(params: Any, principal: Any) -> Any:
        if owner.setdefault(params.key, params.episode) != params.episode:
            raise KeyConflict(f"the key {params.key!r} belongs to another episode")
        return submit(params, principal)

    host.submit = shared


@faults.caught_by("channel/grade_key")
def a_grade_key_may_be_reused(app: LudusApp) -> None:
    first: dict[str, Any] = {}
    on_params(app, "grade", lambda params: first.setdefault(params.key, params))


@faults.caught_by("channel/fork_once")
def a_fork_sent_again_forks_again(app: LudusApp) -> None:
    sent = itertools.count()
    on_params(app, "fork", lambda params: params.model_copy(update={"key": f"{params.key}/{next(sent)}"}))


@faults.caught_by("channel/keys_of_principals")
def principals_share_the_keys_of_starts(app: LudusApp) -> None:
    made: dict[str, tuple[str, Any]] = {}

    def wrap(start: Handler) -> Handler:
        async def shared(params: Any, principal: Any) -> Any:
            name, result = made.get(params.key, (principal.name, None))
            if name != principal.name:
                return result
            made[params.key] = principal.name, await start(params, principal)
            return made[params.key][1]

        return shared

    on_host(app, "start", wrap)


# ── rewards ────────────────────────────────────────────────────────────────────────────────────────────────────────


@faults.caught_by("channel/shape", "channel/grading", "channel/closed", "channel/total", "channel/nothing_earned")
def a_total_is_unscored_without_a_reason(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        return result.model_copy(update={"total": result.total.model_copy(update={"value": None, "reason": None})})

    on_result(app, "rewards", change)


@faults.caught_by("channel/nothing_earned")
def a_total_of_0_has_no_reason(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        return result.model_copy(update={"total": result.total.model_copy(update={"reason": None})})

    on_result(app, "rewards", change)


# ── frames and handshakes ──────────────────────────────────────────────────────────────────────────────────────────


@faults.caught_by("channel/large_frame")
def frames_above_the_announced_limit_run(app: LudusApp) -> ASGIApp:
    def sent(scope: Any, message: Any) -> Any:
        if message["type"] != "websocket.accept":
            return message
        headers = [(name, b"100000" if name == b"ludus-max-frame" else value) for name, value in message["headers"]]
        return {**message, "headers": headers}

    return frames(app, sent=sent)


@faults.caught_by("mcp/handshake")
def initialize_does_not_name_the_server(app: LudusApp) -> ASGIApp:
    def change(asked: Any, answer: Any) -> Any:
        if isinstance(asked, dict) and asked.get("method") == "initialize":
            answer["result"].pop("serverInfo")
        return answer

    return Rewriting(app, under("/mcp"), answer=as_json(change))


@pytest.mark.suite("planted-faults", first=9)
@pytest.mark.parametrize("fault", faults.all)
async def test_the_checks_that_name_a_fault_find_it(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault, fault.checks))


@pytest.mark.suite("planted-faults")
@pytest.mark.parametrize("fault", faults.sampled)
async def test_no_other_check_is_failed_by_a_fault(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault))
