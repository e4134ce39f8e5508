"""The ORS profile (spec chapter 7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import conformance_world as world
import pytest
from conformance_peer import ChannelPeer, OrsPeer, Peer, until, validate

from ludus.server.web.serve import LudusServer

Connect = Callable[..., Any]


@pytest.fixture
async def ors(server: LudusServer, connect: Connect) -> OrsPeer:
    peer: OrsPeer = connect("ors", server)
    return peer


@pytest.fixture
async def trainer(server: LudusServer, connect: Connect) -> Peer:
    peer: ChannelPeer = connect("channel", server)
    return peer


def episode_of(server: LudusServer) -> str:
    """The id of the server's only episode."""
    (episode,) = server.app.context.host._register
    return episode.id


@pytest.mark.requirement("ORS-1")
async def test_every_environment_is_served_under_its_name(ors: OrsPeer, trainer: Peer) -> None:
    names = {one["name"] for one in (await trainer.call("environments/list"))["environments"]}
    assert set((await ors.ask("GET", "/list_environments"))[1]) == names
    for name in names:
        status, tools = await ors.ask("GET", f"/{name}/tools")
        assert (status, bool(tools["tools"])) == (200, True)
        assert (await ors.ask("GET", f"/{name}/splits"))[0] == 200


TASKS = {"split": "train"}


@pytest.mark.requirement("ORS-2", "CRED-4")
async def test_tasks_and_sessions_need_their_scopes(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect
) -> None:
    about_tasks = [("tasks", TASKS), ("num_tasks", TASKS), ("task", {**TASKS, "index": 0}), ("task_range", TASKS)]
    create = {"env_name": "workshop", "split": "train", "index": 0}
    for name, statuses in ((None, {401}), ("wrong", {401}), ("player", {200}), ("reader", {200}), ("alice", {200})):
        peer: OrsPeer = connect("ors", guarded, tokens.get(name, name) if name else None)
        for path, body in about_tasks:
            assert (await peer.ask("POST", f"/workshop/{path}", body))[0] in statuses, (name, path)
    for name, statuses in ((None, {401}), ("wrong", {401}), ("player", {403}), ("reader", {403}), ("alice", {200})):
        peer = connect("ors", guarded, tokens.get(name, name) if name else None)
        assert (await peer.ask("POST", "/create", create, f"session of {name}"))[0] in statuses, name
    alice: OrsPeer = connect("ors", guarded, tokens["alice"])
    assert (await alice.ask("POST", "/workshop/tasks", {"split": "test"}))[0] == 403
    assert (await alice.ask("POST", "/create", {**create, "split": "test"}, "s"))[0] == 403
    for path in ("call", "prompt", "task_tools"):
        anonymous: OrsPeer = connect("ors", guarded)
        method = "POST" if path == "call" else "GET"
        body = {"name": "earn", "input": {}} if path == "call" else None
        assert (await anonymous.ask(method, f"/workshop/{path}", body, "session of alice"))[0] == 401
    assert world.RUNS["earn"] == 0


@pytest.mark.requirement("ORS-3")
@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
async def test_a_token_is_taken_from_either_header(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect, header: str
) -> None:
    peer: OrsPeer = connect("ors", guarded, tokens["alice"], header=header)
    session = await peer.open()
    assert (await peer.call(session, "earn"))["output"]["reward"] == 1.0


@pytest.mark.requirement("ORS-4")
async def test_a_session_is_an_episode_from_create_to_delete(ors: OrsPeer, trainer: Peer, server: LudusServer) -> None:
    session = await ors.open(index=2)
    assert (await ors.ask("GET", "/workshop/prompt", session=session))[1][0]["text"] == "Question 2?"
    episode = episode_of(server)
    info = await trainer.info(episode)
    assert (info["environment"], info["task"]["id"], info["status"]) == ("workshop", "p-2", "running")
    assert (await ors.ask("POST", "/delete", session=session))[0] == 200
    await until(lambda: server.app.context.host.stats().running == 0)
    assert (await trainer.info(episode))["endReason"] == "closed"
    await until(lambda: world.RUNS["teardown"] == 1)


@pytest.mark.requirement("ORS-5")
async def test_a_session_of_another_principal_is_not_there(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect
) -> None:
    alice, bob = (connect("ors", guarded, tokens[name]) for name in ("alice", "bob"))
    session = await alice.open()
    routes: list[tuple[str, str, Any]] = [
        ("GET", "/workshop/prompt", None),
        ("GET", "/workshop/task_tools", None),
        ("GET", "/workshop/messages", None),
        ("POST", "/workshop/call", {"name": "earn", "input": {}}),
        ("POST", "/workshop/score_group", {"candidates": []}),
        ("POST", "/ping", None),
    ]
    for method, path, body in routes:
        answers = [await bob.ask(method, path, body, named) for named in (session, "never-was")]
        assert answers[0] == answers[1], path
        assert answers[0][0] == 404, path
    await bob.ask("POST", "/delete", session=session)
    assert (await alice.call(session, "earn"))["output"]["reward"] == 1.0
    assert world.RUNS["earn"] == 1


@pytest.mark.requirement("ORS-6", "ORS-7", "ORS-8")
async def test_a_call_is_a_step_with_its_reward_and_end(ors: OrsPeer, trainer: Peer, server: LudusServer) -> None:
    session = await ors.open()
    outputs = [
        (await ors.call(session, name, arguments))["output"]
        for name, arguments in (
            ("which", {}), ("earn", {"amount": 0.5}), ("judge", {}), ("say", {"text": "x"}), ("finish", {"word": "x"}),
        )
    ]  # fmt: skip
    assert outputs[0]["blocks"][0]["text"] == "1"
    assert [output["reward"] for output in outputs] == [None, 0.5, None, None, 0.0]
    assert [output["finished"] for output in outputs] == [False] * 4 + [True]
    episode = episode_of(server)
    info = await trainer.info(episode)
    assert (info["steps"], info["endReason"]) == (5, "completed")
    log = (await trainer.rewards(episode))["entries"]
    assert [(entry["step"], entry["reward"]["value"]) for entry in log] == [(2, 0.5), (3, None), (5, 0.0)]
    assert (await ors.call(session, "earn"))["ok"] is False
    assert world.RUNS["earn"] == 1


@pytest.mark.requirement("ORS-9")
async def test_mistakes_refusals_and_failures_are_told_apart(
    ors: OrsPeer, server: LudusServer, connect: Connect
) -> None:
    session = await ors.open()
    unknown = await ors.call(session, "sing")
    assert (unknown["ok"], "sing" in unknown["error"]) == (False, True)
    wrong = await ors.call(session, "say", {"text": 3})
    assert (wrong["ok"], "text" in wrong["error"]) == (False, True)
    refused = await ors.call(session, "refuse")
    assert refused["ok"] is True
    assert refused["output"]["blocks"][0]["text"] == "you may not do that here"
    faulty = await ors.open("faulty")
    for _ in range(2):
        events = await ors.events("/faulty/call", {"name": "crash", "input": {}}, faulty)
        if events[-1][0] == "error":
            assert world.SECRET not in events[-1][1]
            break
    else:
        pytest.fail("a tool that crashes sent no error event")
    assert world.RUNS["crash"] == 1


@pytest.mark.requirement("ORS-10")
async def test_a_call_taken_up_again_is_no_second_step(ors: OrsPeer, server: LudusServer, connect: Connect) -> None:
    session, other = await ors.open(), await ors.open(index=1)
    body = {"name": "wait", "input": {"gate": "g"}}
    first = asyncio.create_task(ors.events("/workshop/call", body, session))
    await until(lambda: world.RUNS["begin g"] == 1)
    world.GATES["g"].set()
    events = await first
    task_id = next(data for kind, data in events if kind == "task_id")
    again = await ors.events("/workshop/call", {**body, "task_id": task_id}, session)
    assert OrsPeer.result(again) == OrsPeer.result(events)
    assert (world.RUNS["begin g"], world.RUNS["end g"]) == (1, 1)
    stolen = await ors.events("/workshop/call", {**body, "task_id": task_id}, other)
    assert stolen[-1][0] == "error"
    assert world.RUNS["begin g"] == 1


@pytest.mark.requirement("ORS-11", "CRED-13")
async def test_tasks_hold_public_fields_and_those_of_test_splits_none(ors: OrsPeer) -> None:
    for split, first in (("train", 0), ("validation", 0), ("test", 100)):
        public = {} if split == "test" else {"question": f"Question {first}?"}
        task = {**public, "id": f"p-{first}", "split": split}
        assert (await ors.ask("POST", "/workshop/tasks", {"split": split}))[1]["tasks"][0] == task
        assert (await ors.ask("POST", "/workshop/task", {"split": split, "index": 0}))[1]["task"] == task
        ranged = await ors.ask("POST", "/workshop/task_range", {"split": split, "start": 0, "stop": 1})
        assert ranged[1]["tasks"] == [task]
        assert world.SECRET not in json.dumps(ranged)


@pytest.mark.requirement("ORS-12", "CONT-4")
@pytest.mark.parametrize("space", [" ", "\u00a0", "\u3000", "\u2028", "\t"], ids=ascii)
async def test_no_piece_of_a_result_begins_with_white_space(ors: OrsPeer, space: str) -> None:
    session = await ors.open()
    for text in (space * 20_000, *(("x" * lead + space) * 3000 for lead in (1, 2, 7))):
        events = await ors.events("/workshop/call", {"name": "say", "input": {"text": text}}, session)
        pieces = [data for kind, data in events if kind in ("chunk", "end")]
        assert len(pieces) > 1
        assert not [piece for piece in pieces if piece[:1].isspace()]
        shown = json.loads("".join(piece.lstrip() for piece in pieces))["output"]["blocks"][0]["text"]
        assert shown == text


@pytest.mark.requirement("ORS-13")
async def test_a_final_answer_has_its_tool(ors: OrsPeer, trainer: Peer, server: LudusServer) -> None:
    tools = (await ors.ask("GET", "/workshop/tools"))[1]
    assert "submit_answer" in [tool["name"] for tool in tools["tools"]]
    assert (tools["terminal_tool"]["name"], tools["terminal_tool"]["arg"]) == ("submit_answer", "answer")
    assert (await ors.ask("GET", "/plain/tools"))[1]["terminal_tool"] is None
    session = await ors.open()
    output = (await ors.call(session, "submit_answer", {"answer": f"{world.SECRET}-0"}))["output"]
    assert (output["reward"], output["finished"]) == (1.0, True)
    assert (await trainer.info(episode_of(server)))["endReason"] == "submitted"


async def everything(ors: OrsPeer) -> None:
    """Ask for all that may be extended."""
    for name in ("workshop", "faulty"):
        session = await ors.open(name)
        for method, path, body in (
            ("GET", "tools", None), ("GET", "splits", None), ("GET", "prompt", None), ("GET", "task_tools", None),
            ("POST", "task", {"split": "train", "index": 0}), ("POST", "tasks", TASKS),
        ):  # fmt: skip
            await ors.ask(method, f"/{name}/{path}", body, session)
        for tool in ("earn", "sing", "refuse", "crash", "earn"):
            await ors.events(f"/{name}/call", {"name": tool, "input": {}}, session)


@pytest.mark.requirement("ORS-14")
async def test_clients_that_do_not_know_the_extension_never_see_it(ors: OrsPeer) -> None:
    await everything(ors)
    assert len(ors.texts) > 20
    assert not [text for text in ors.texts if '"ludus"' in text or "event: ludus" in text]


@pytest.mark.requirement("ORS-15")
async def test_clients_that_know_the_extension_learn_what_ors_has_no_word_for(ors: OrsPeer) -> None:
    ors.headers["Ludus-Extension"] = "0.1"
    session, faulty = await ors.open(), await ors.open("faulty")
    told = (await ors.call(session, "earn"))["ludus"]
    validate("StepResult", {**told, "content": []})
    assert told["reward"]["components"][f"{world.SECRET}-part"]["value"] == 1.0
    assert (await ors.call(session, "refuse"))["ludus"]["error"]["code"] == "refused"
    events = await ors.events("/faulty/call", {"name": "crash", "input": {}}, faulty)
    assert [kind for kind, _ in events][-2:] == ["ludus", "error"]
    error = json.loads(events[-2][1])
    validate("ErrorObject", error)
    assert (error["code"], world.SECRET in events[-2][1]) == (5001, False)
