"""Each fault of the play plane makes exactly the checks fail that name it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from planting import CheckPlanted, Faults, Planted, Rewriting, as_json, assert_caught, on_result, under
from starlette.types import ASGIApp
from worlds import SECRET_ANSWER, Tallying

from ludus.protocol.errors import CapabilityRefused
from ludus.protocol.identifiers import EXTENSION_ID, METHOD_PREFIX, STEP_META_KEY
from ludus.server.auth.capabilities import Claims
from ludus.server.serving.app import LudusApp

faults = Faults()


def _play(app: LudusApp, method: str, change: Callable[[Any, Any], Any]) -> ASGIApp:
    """Change the results of one MCP method on every play plane: `change(params, result)`."""

    def changed(asked: Any, answer: Any) -> Any:
        if isinstance(asked, dict) and asked.get("method") == method and "result" in answer:
            answer["result"] = change(asked["params"], answer["result"])
        return answer

    return Rewriting(app, under("/play/"), answer=as_json(changed))


@faults.caught_by("play/no_reward")
def the_reward_is_in_meta(app: LudusApp) -> ASGIApp:
    return _play(app, "tools/call", lambda params, result: {**result, "_meta": {"dev.example/x": {"value": 0.25}}})


@faults.caught_by("play/no_reward", "play/observation")
def the_reward_is_beside_the_text(app: LudusApp) -> ASGIApp:
    def change(params: Any, result: Any) -> Any:
        return {**result, "content": [{**block, "reward": 0.25} for block in result["content"]]}

    return _play(app, "tools/call", change)


@faults.caught_by("play/observation")
def the_reward_is_told_in_words(app: LudusApp) -> ASGIApp:
    def change(params: Any, result: Any) -> Any:
        return {**result, "content": [*result["content"], {"type": "text", "text": "You earned 0.25."}]}

    return _play(app, "tools/call", change)


@faults.caught_by("play/observation", "play/no_reward")
def structured_content_holds_metadata(app: LudusApp) -> ASGIApp:
    return _play(app, "tools/call", lambda params, result: {**result, "structuredContent": {"metadata": {"n": 1}}})


@faults.caught_by("play/observation", environment=Tallying)
def structured_content_says_more_than_the_text(app: LudusApp) -> ASGIApp:
    def change(params: Any, result: Any) -> Any:
        return {**result, "structuredContent": {**result.get("structuredContent", {}), "hint": 3}}

    return _play(app, "tools/call", change)


@faults.caught_by("play/observation", environment=Tallying)
def structured_content_has_no_announced_schema(app: LudusApp) -> ASGIApp:
    def change(params: Any, result: Any) -> Any:
        tools = [{key: value for key, value in tool.items() if key != "outputSchema"} for tool in result["tools"]]
        return {**result, "tools": tools}

    return _play(app, "tools/list", change)


@faults.caught_by("play/observation", environment=Tallying)
def announced_structured_content_is_missing(app: LudusApp) -> ASGIApp:
    def change(params: Any, result: Any) -> Any:
        return {key: value for key, value in result.items() if key != "structuredContent"}

    return _play(app, "tools/call", change)


@faults.caught_by("play/private")
def the_answer_is_in_an_observation(app: LudusApp) -> ASGIApp:
    return _play(app, "prompts/list", lambda params, result: {**result, "_meta": {"dev.example/a": SECRET_ANSWER}})


@faults.caught_by("play/no_lifecycle")
def the_extension_is_answered_to_players(app: LudusApp) -> ASGIApp:
    def changed(asked: Any, answer: Any) -> Any:
        if isinstance(asked, dict) and str(asked.get("method")).startswith(METHOD_PREFIX):
            return {"jsonrpc": "2.0", "id": asked["id"], "result": {}}
        return answer

    return Rewriting(app, under("/play/"), answer=as_json(changed))


@faults.caught_by("play/no_extension")
def the_extension_is_announced_to_players(app: LudusApp) -> ASGIApp:
    def change(params: Any, result: Any) -> Any:
        return {**result, "capabilities": {**result["capabilities"], "extensions": {EXTENSION_ID: {}}}}

    return _play(app, "server/discover", change)


@faults.caught_by("play/own_episode", parallel=1)
def every_capability_opens_the_last_episode(app: LudusApp) -> None:
    signer: Any = app.context.signer
    verify = signer.verify
    started: list[str] = []

    def note(params: Any, result: Any) -> Any:
        started.append(result.episodes[-1].episode)
        return result

    def confused(capability: str) -> Claims:
        claims: Claims = verify(capability)
        return claims._replace(episode=started[-1])

    on_result(app, "start", note)
    signer.verify = confused


@faults.caught_by("play/forged")
def an_altered_capability_is_accepted(app: LudusApp) -> None:
    signer: Any = app.context.signer
    sign, verify = signer.sign, signer.verify
    signed: list[str] = []

    def remember(episode: str, tools: Any, principal: Any = None) -> Any:
        made = sign(episode, tools, principal)
        signed.append(made[0])
        return made

    def lenient(capability: str) -> Claims:
        try:
            return verify(capability)  # type: ignore[no-any-return]
        except CapabilityRefused:
            for one in signed:
                if len(one) == len(capability) and sum(a != b for a, b in zip(one, capability, strict=True)) == 1:
                    return verify(one)  # type: ignore[no-any-return]
            raise

    signer.sign, signer.verify = remember, lenient


@faults.caught_by("play/forged")
def a_forged_capability_is_unauthorized_not_unknown(app: LudusApp) -> ASGIApp:
    return Rewriting(app, under("/play/"), status=lambda status: 401 if status == 404 else status)


@faults.caught_by("play/unguessable")
def capabilities_are_counted(app: LudusApp) -> None:
    signer: Any = app.context.signer
    sign, verify = signer.sign, signer.verify
    real: dict[str, str] = {}

    def count(episode: str, tools: Any, principal: Any = None) -> Any:
        capability, *rest = sign(episode, tools, principal)
        counted = f"{'A' * 40}{len(real):04}"
        real[counted] = capability
        return (counted, *rest)

    signer.sign = count
    signer.verify = lambda capability: verify(real.get(capability, capability))


@faults.caught_by("play/expiry", settings={"capability_seconds": 1.0}, parallel=8)
def a_capability_outlives_its_end(app: LudusApp) -> None:
    signer: Any = app.context.signer
    sign, verify = signer.sign, signer.verify

    def claim_less(episode: str, tools: Any, principal: Any = None) -> Any:
        signer.ttl_seconds = 3600
        capability, expires = sign(episode, tools, principal)
        return capability, expires - 3598

    signer.sign, signer.verify = claim_less, verify


@faults.caught_by("play/mistakes", "play/after_the_end", "play/closed", "play/submit_wrong")
def errors_are_not_marked(app: LudusApp) -> ASGIApp:
    return _play(app, "tools/call", lambda params, result: {**result, "isError": False})


@faults.caught_by("play/tools")
def a_tool_is_described_otherwise(app: LudusApp) -> ASGIApp:
    def change(params: Any, result: Any) -> Any:
        tools = [{**tool, "description": tool["description"].upper()} for tool in result["tools"]]
        return {**result, "tools": tools}

    return _play(app, "tools/list", change)


@faults.caught_by("play/prompt")
def instructions_are_missing(app: LudusApp) -> ASGIApp:
    return _play(app, "initialize", lambda params, result: {**result, "instructions": "Play!"})


@faults.caught_by("play/play_once", "play/play_conflicts", "play/hang_up")
def numbers_and_keys_of_players_are_ignored(app: LudusApp) -> ASGIApp:
    def request(body: bytes) -> bytes:
        asked = json.loads(body)
        if isinstance(asked, dict):
            (asked.get("params") or {}).get("_meta", {}).pop(STEP_META_KEY, None)
        return json.dumps(asked).encode()

    return Rewriting(app, under("/play/"), request=request)


@faults.caught_by("play/submit", "play/submit_wrong")
def an_answer_of_a_player_is_lost(app: LudusApp) -> ASGIApp:
    def request(body: bytes) -> bytes:
        return body.replace(b'"submit_answer"', b'"where"').replace(
            b'"arguments": {"answer": "an answer"}', b'"arguments": {}'
        )

    return Rewriting(app, under("/play/"), request=request)


def _submitted(app: LudusApp, said: str) -> ASGIApp:
    def changed(asked: Any, answer: Any) -> Any:
        params = asked.get("params") if isinstance(asked, dict) else None
        if isinstance(params, dict) and params.get("name") == "submit_answer" and "result" in answer:
            answer["result"]["content"] = [{"type": "text", "text": said}]
        return answer

    return Rewriting(app, under("/play/"), answer=as_json(changed))


@faults.caught_by("play/submit")
def the_verdict_is_shown_to_the_player(app: LudusApp) -> ASGIApp:
    return _submitted(app, "Your answer was incorrect.")


@faults.caught_by("play/submit")
def the_reward_is_shown_to_the_player(app: LudusApp) -> ASGIApp:
    return _submitted(app, "Thank you: 0.0")


@faults.caught_by("play/submit_wrong")
def an_answer_that_does_not_fit_is_submitted(app: LudusApp) -> ASGIApp:
    def request(body: bytes) -> bytes:
        asked = json.loads(body)
        params = asked.get("params") if isinstance(asked, dict) else None
        if isinstance(params, dict) and params.get("name") == "submit_answer":
            params["arguments"] = {"answer": str(params.get("arguments", {}).get("answer"))}
        return json.dumps(asked).encode()

    return Rewriting(app, under("/play/"), request=request)


@faults.caught_by("play/expiry")
def capabilities_expire_in_milliseconds(app: LudusApp) -> None:
    def change(params: Any, result: Any) -> Any:
        episodes = tuple(
            one.model_copy(update={"play": one.play.model_copy(update={"expires_at": one.play.expires_at * 1000})})
            for one in result.episodes
        )
        return result.model_copy(update={"episodes": episodes})

    on_result(app, "start", change)


@faults.caught_by("play/legacy_client")
def the_older_era_cannot_call(app: LudusApp) -> ASGIApp:
    def changed(asked: Any, answer: Any) -> Any:
        calls = isinstance(asked, dict) and asked.get("method") == "tools/call"
        if calls and "io.modelcontextprotocol/protocolVersion" not in asked["params"].get("_meta", {}):
            return {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32603, "message": "no"}}
        return answer

    return Rewriting(app, under("/play/"), answer=as_json(changed))


@faults.caught_by("play/earned")
def what_players_earn_is_not_logged(app: LudusApp) -> None:
    host: Any = app.context.host
    play = host.play

    async def free(episode: str, *arguments: Any, **named: Any) -> Any:
        result = await play(episode, *arguments, **named)
        found = host.store.find(episode)
        found.entries = None
        return result

    host.play = free


@pytest.mark.suite("planted-faults", first=5)
@pytest.mark.parametrize("fault", faults.all)
async def test_the_checks_that_name_a_fault_find_it(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault, fault.checks))


@pytest.mark.parametrize("fault", faults.sampled)
async def test_no_other_check_is_failed_by_a_fault(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault))
