"""From a method's name and raw params to the host's answer: the table, the scope, the types."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ludus.protocol import methods as m
from ludus.protocol._model import WireModel
from ludus.protocol.errors import InvalidParams, MethodNotFound
from ludus.protocol.text import json_problem
from ludus.server.auth.principal import Principal
from ludus.server.authoring.tools import explain
from ludus.server.runtime.host import EpisodeHost

HANDLERS: Mapping[str, str] = {
    m.LIST_ENVIRONMENTS.name: "list_environments",
    m.LIST_SPLITS.name: "list_splits",
    m.LIST_TASKS.name: "list_tasks",
    m.GET_TASK.name: "get_task",
    m.SAMPLE_TASKS.name: "sample_tasks",
    m.START.name: "start",
    m.STEP.name: "step",
    m.GRADE.name: "grade",
    m.REWARDS.name: "rewards",
    m.GET_EPISODE.name: "get_episode",
    m.FORK.name: "fork",
    m.CLOSE.name: "close",
    m.SCORE_GROUP.name: "score_group",
    m.REPORT_OUTCOMES.name: "report_outcomes",
}
"""Which coroutine of the host answers which method."""


_OF_THE_CALL = frozenset({"tool", "arguments"})


async def dispatch(host: EpisodeHost, method: str, params: Mapping[str, Any], principal: Principal) -> WireModel:
    """Answer one request.

    Raises:
        MethodNotFound: no such method; the message names the nearest.
        Forbidden: the principal lacks the method's scope.
        InvalidParams: the params do not fit; the message says where.
        LudusError: whatever the host raises.
    """
    entry = find(method)
    principal.require(entry.scope)
    result: WireModel = await getattr(host, HANDLERS[method])(read_params(entry, params), principal)
    return result


def find(method: str) -> m.Method[Any, Any]:
    """The method of a name.

    Raises:
        MethodNotFound: there is none.
    """
    entry = m.METHODS.get(method)
    if entry is None:
        near = difflib.get_close_matches(method[:200], m.METHODS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise MethodNotFound(f"there is no method {method[:200]!r}{hint}", method=method[:200])
    return entry


def read_params(entry: m.Method[Any, Any], params: Mapping[str, Any]) -> Any:
    """Validated params.

    Raises:
        InvalidParams: they do not fit.
    """
    check_params(entry.name, params)
    try:
        return entry.params.model_validate(params)
    except ValidationError as error:
        raise InvalidParams(
            f"wrong params for {entry.name}: {explain(error, entry.params.model_validate, params)}", method=entry.name
        ) from None


def check_params(method: str, params: Mapping[str, Any]) -> None:
    """Refuse numbers that are not finite and lone surrogates; those of a step's call are for its tool to refuse.

    Raises:
        InvalidParams: there is one of them; the message says where.
    """
    given = {name: value for name, value in params.items() if not (method == m.STEP.name and name in _OF_THE_CALL)}
    if (problem := json_problem(given, "params")) is not None:
        raise InvalidParams(f"wrong params for {method}: {problem}", method=method)
