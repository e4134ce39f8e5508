"""Each fault in what a server announces makes exactly the checks fail that name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from planting import CheckPlanted, Faults, Planted, Rewriting, as_json, assert_caught, under
from starlette.types import ASGIApp

from ludus.protocol.identifiers import EXTENSION_ID
from ludus.server.web.app import LudusApp

faults = Faults()


def _settings(app: LudusApp, change: Callable[[dict[str, Any]], None]) -> ASGIApp:
    """Change the settings that the server announces, in every revision."""

    def changed(asked: Any, answer: Any) -> Any:
        capabilities = (answer.get("result") or {}).get("capabilities") or {}
        for era in ("extensions", "experimental"):
            if EXTENSION_ID in capabilities.get(era, {}):
                change(capabilities[era][EXTENSION_ID])
        return answer

    return Rewriting(app, under("/mcp"), answer=as_json(changed))


@faults.caught_by("mcp/discover", "mcp/initialize")
def discover_announces_another_version(app: LudusApp) -> ASGIApp:
    def change(asked: Any, answer: Any) -> Any:
        if isinstance(asked, dict) and asked.get("method") == "server/discover":
            answer["result"]["capabilities"]["extensions"][EXTENSION_ID]["version"] = "0.1"
        return answer

    return Rewriting(app, under("/mcp"), answer=as_json(change))


@faults.caught_by("mcp/modules")
def the_channel_is_announced_without_its_subprotocol(app: LudusApp) -> ASGIApp:
    return _settings(app, lambda settings: settings["modules"]["channel"].pop("subprotocol"))


@faults.caught_by("mcp/modules")
def a_module_that_nobody_knows_has_no_object(app: LudusApp) -> ASGIApp:
    return _settings(app, lambda settings: settings["modules"].update(weather=True))


@faults.caught_by("channel/unannounced", "mcp/unannounced")
def methods_of_unannounced_modules_are_served(app: LudusApp) -> ASGIApp:
    return _settings(app, lambda settings: settings["modules"].pop("sampling"))


@faults.caught_by("channel/unannounced", "mcp/unannounced")
def fields_of_unannounced_modules_are_served(app: LudusApp) -> ASGIApp:
    return _settings(app, lambda settings: settings["modules"].pop("turns"))


@faults.caught_by("channel/unannounced", "mcp/unannounced")
def results_have_play_paths_of_a_server_without_play(app: LudusApp) -> ASGIApp:
    return _settings(app, lambda settings: settings["modules"].pop("play"))


@pytest.mark.parametrize("fault", faults.all)
async def test_the_checks_that_name_a_fault_find_it(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault, fault.checks))


@pytest.mark.parametrize("fault", faults.sampled)
async def test_no_other_check_is_failed_by_a_fault(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault))
