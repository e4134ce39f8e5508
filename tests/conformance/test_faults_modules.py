"""Each fault in what a server announces, and in its MCP endpoint, makes exactly the checks fail that name it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from planting import CheckPlanted, Faults, Planted, Rewriting, as_json, assert_caught, under
from starlette.types import ASGIApp

from ludus.protocol.identifiers import EXTENSION_ID, METHOD_PREFIX
from ludus.server.serving.app import LudusApp

faults = Faults()


def _mcp(app: LudusApp, change: Callable[[Any, Any], Any]) -> ASGIApp:
    return Rewriting(app, under("/mcp"), answer=as_json(change))


def _settings(app: LudusApp, change: Callable[[dict[str, Any]], None]) -> ASGIApp:
    """Change the settings that the server announces, in every revision."""

    def changed(asked: Any, answer: Any) -> Any:
        capabilities = (answer.get("result") or {}).get("capabilities") or {}
        for era in ("extensions", "experimental"):
            if EXTENSION_ID in capabilities.get(era, {}):
                change(capabilities[era][EXTENSION_ID])
        return answer

    return _mcp(app, changed)


@faults.caught_by("mcp/discover", "mcp/initialize")
def discover_announces_another_version(app: LudusApp) -> ASGIApp:
    def change(asked: Any, answer: Any) -> Any:
        if isinstance(asked, dict) and asked.get("method") == "server/discover":
            answer["result"]["capabilities"]["extensions"][EXTENSION_ID]["version"] = "0.1"
        return answer

    return _mcp(app, change)


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


@faults.caught_by("mcp/discover", "mcp/modules", "mcp/unannounced")
def discover_does_not_announce_the_extension(app: LudusApp) -> ASGIApp:
    def change(asked: Any, answer: Any) -> Any:
        if isinstance(asked, dict) and asked.get("method") == "server/discover":
            answer["result"]["capabilities"].pop("extensions")
        return answer

    return _mcp(app, change)


@faults.caught_by("mcp/initialize")
def initialize_does_not_announce_the_extension(app: LudusApp) -> ASGIApp:
    def change(asked: Any, answer: Any) -> Any:
        if isinstance(asked, dict) and asked.get("method") == "initialize":
            answer["result"]["capabilities"]["experimental"].pop(EXTENSION_ID)
        return answer

    return _mcp(app, change)


@faults.caught_by("mcp/undeclared")
def the_extension_needs_no_declaration(app: LudusApp) -> ASGIApp:
    def request(body: bytes) -> bytes:
        wrong = b'"io.modelcontextprotocol/clientCapabilities": {}'
        right = wrong[:-2] + b'{"extensions": {"dev.ludus/episodes": {"version": "0.2"}}}'
        return body.replace(wrong, right) if METHOD_PREFIX.encode() in body else body

    return Rewriting(app, under("/mcp"), request=request)


@faults.caught_by("mcp/legacy", "mcp/across_wires")
def the_older_era_has_no_extension(app: LudusApp) -> ASGIApp:
    def change(asked: Any, answer: Any) -> Any:
        params = asked.get("params") if isinstance(asked, dict) else None
        if isinstance(params, dict) and asked["method"].startswith(METHOD_PREFIX) and "_meta" not in params:
            return {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "Method not found"}}
        return answer

    return _mcp(app, change)


@faults.caught_by("mcp/start_tool")
def there_is_no_tool_to_start_an_episode(app: LudusApp) -> ASGIApp:
    def change(asked: Any, answer: Any) -> Any:
        if isinstance(asked, dict) and asked.get("method") == "tools/list":
            answer["result"]["tools"] = [t for t in answer["result"]["tools"] if t["name"] != "start_episode"]
        return answer

    return _mcp(app, change)


@faults.caught_by("mcp/same_tools")
def those_who_declare_are_listed_fewer_tools(app: LudusApp) -> ASGIApp:
    def change(asked: Any, answer: Any) -> Any:
        if isinstance(asked, dict) and asked.get("method") == "tools/list" and EXTENSION_ID in json.dumps(asked):
            answer["result"]["tools"] = answer["result"]["tools"][1:]
        return answer

    return _mcp(app, change)


@faults.caught_by("mcp/no_reward")
def a_tool_of_the_endpoint_shows_the_reward(app: LudusApp) -> ASGIApp:
    def change(asked: Any, answer: Any) -> Any:
        if isinstance(asked, dict) and asked.get("method") == "tools/call" and asked["params"]["name"] == "call_tool":
            answer["result"]["_meta"] = {"reward": 0.25}
        return answer

    return _mcp(app, change)


@pytest.mark.parametrize("fault", faults.all)
async def test_the_checks_that_name_a_fault_find_it(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault, fault.checks))


@pytest.mark.suite("planted-faults")
@pytest.mark.parametrize("fault", faults.sampled)
async def test_no_other_check_is_failed_by_a_fault(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault))
