"""Dispatches a request to the host by its method name, after checking the scope and the params."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ludus.common.incidents import new_incident
from ludus.protocol import methods as m
from ludus.protocol.errors import InternalError, InvalidParams, MethodNotFound
from ludus.protocol.model import WireModel
from ludus.protocol.text import json_problem
from ludus.server.auth.principal import Principal
from ludus.server.authoring.tools import explain
from ludus.server.hosting.host import EpisodeHost

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
    m.LIST_WORLDS.name: "list_worlds",
    m.GET_WORLD.name: "get_world",
    m.BRANCH_WORLD.name: "branch_world",
    m.RESET_WORLD.name: "reset_world",
    m.DELETE_WORLD.name: "delete_world",
}
"""The host's coroutine for each method."""

_OF_THE_CALL = frozenset({"tool", "arguments"})


async def dispatch(host: EpisodeHost, method: str, params: Mapping[str, Any], principal: Principal) -> WireModel:
    """Answer one request.

    Raises:
        MethodNotFound: there is no such method; the message names the nearest one.
        Forbidden: the principal lacks the method's scope.
        InvalidParams: the params are not valid; the message says where.
        LudusError: the host raised it.
    """
    entry = m.METHODS.get(method)
    if entry is None:
        near = difflib.get_close_matches(method[:200], m.METHODS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise MethodNotFound(f"there is no method {method[:200]!r}{hint}", method=method[:200])
    principal.require(entry.scope)
    check_params(method, params)
    try:
        valid = entry.params.model_validate(params)
    except ValidationError as error:
        cause = explain(error, entry.params.model_validate, params)
        raise InvalidParams(f"wrong params for {method}: {cause}", method=method) from None
    result: WireModel = await getattr(host, HANDLERS[method])(valid, principal)
    return result


def check_params(method: str, params: Mapping[str, Any]) -> None:
    """Check that the params hold no non-finite numbers and no lone surrogates.

    The tool and arguments of a step are not checked here: a mistake in them is a refused step, not a failed request.

    Raises:
        InvalidParams: there is such a value; the message says where.
    """
    checked = {name: value for name, value in params.items() if not (method == m.STEP.name and name in _OF_THE_CALL)}
    if (problem := json_problem(checked, "params")) is not None:
        raise InvalidParams(f"wrong params for {method}: {problem}", method=method)


def unexpected_error(method: str, logger: logging.Logger) -> InternalError:
    """Log the exception that is being handled, and return the error for the client, which does not show its text."""
    incident = new_incident()
    logger.exception("%s failed (incident %s)", method, incident, extra={"incident": incident})
    return InternalError(
        f"the server failed at {method}; its log has the cause under incident {incident}", incident=incident
    )
