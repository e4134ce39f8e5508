"""Verified runs from registration to receipt: real sandboxes, a real endpoint of an environment, a scripted model."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from typer.testing import CliRunner
from verified_hub import MODEL, OWNER, SECRET, VerifiedHub, right_turn
from waiting import block_until

from ludus.hub.command import hub_group
from ludus.registry.types.receipts import Receipt, ReceiptRefused, verify_receipt
from ludus.registry.types.results import BoardKey

pytestmark = pytest.mark.timeout(180)
slow = pytest.mark.suite("hub")


def ends(receipt: dict[str, object]) -> list[tuple[float | None, float, str]]:
    rows: list[dict[str, object]] = receipt["episodes"]  # type: ignore[assignment]
    return [(row["reward"], row["value"], row["end"]) for row in rows]  # type: ignore[misc]


def test_the_hubs_own_harness_plays_a_run_whose_receipt_is_checked_offline(hub: VerifiedHub, tmp_path: Path) -> None:
    receipt = hub.run(options={"temperature": 0.5})
    assert ends(receipt) == [(1.0, 1.0, "completed")] * 2
    assert all(asked["temperature"] == 0.5 for asked in hub.model.asked)
    statement = receipt["statement"]
    assert statement["verified"]["harness"].startswith("ludus ")
    assert (statement["verified"]["model"], statement["calls"]) == (MODEL, 2)
    bodies = {hashlib.sha256(body).hexdigest() for body in hub.model.bodies}
    answers = {hashlib.sha256(answer).hexdigest() for answer in hub.model.answers}
    assert {call["request"] for call in receipt["calls"]} <= bodies
    assert {call["answer"] for call in receipt["calls"]} <= answers
    assert [(row["inputTokens"], row["outputTokens"]) for row in receipt["episodes"]] == [(11, 3)] * 2
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(receipt))
    found = CliRunner().invoke(hub_group, ["verify", str(file), "--key", receipt["key"]])
    assert found.exit_code == 0, found.output
    assert f"2 calls of the model {MODEL} at 127.0.0.1" in found.output
    assert "which model answers behind the endpoint" in found.output


@slow
def test_a_published_harness_plays_a_run_and_is_named_by_the_digest_of_its_wheel(hub: VerifiedHub) -> None:
    receipt = hub.run(harness="root/looper@1.0.0")
    assert ends(receipt) == [(1.0, 1.0, "completed")] * 2
    wheel = hub.get(f"/api/v1/environments/{OWNER}/looper/versions/1.0.0")["sha256"]
    assert receipt["statement"]["verified"]["harness"] == "root/looper@1.0.0#play"
    assert receipt["statement"]["verified"]["harnessSha256"] == wheel


@slow
@pytest.mark.parametrize("change", ["drop", "replay", "other", "tokens", "harness"])
def test_a_receipt_whose_calls_or_harness_were_changed_does_not_hold(hub: VerifiedHub, change: str) -> None:
    hub.looked_at = hub.looked_at or hub.begin()
    receipt = hub.receipt(hub.looked_at)
    calls = receipt["calls"]
    if change == "drop":
        calls.pop()
    elif change == "replay":
        calls.append({**calls[-1], "number": 2})
    elif change == "other":
        calls[0]["answer"] = "0" * 64
    elif change == "tokens":
        receipt["episodes"][0]["inputTokens"] += 1
    else:
        receipt["statement"]["verified"]["harnessSha256"] = "0" * 64
    found = Receipt.model_validate(receipt)
    with pytest.raises(ReceiptRefused):
        verify_receipt(found, found.episodes, None, found.calls)


@slow
def test_a_verified_run_is_ranked_on_a_board_of_its_own(hub: VerifiedHub) -> None:
    hub.run(model="m-ranked")
    where = f"/api/v1/environments/{OWNER}/locks/versions/1.0.0"
    levels = [BoardKey.model_validate(one).level for one in hub.get(f"{where}/boards")["boards"]]
    assert levels == ["verified"]
    board = hub.get(f"{where}/board?environment=locks&split=test&level=verified", None)
    rows = {row["model"]: row for row in board["rows"]}
    row = rows[f"m-ranked at {hub.host}"]
    assert (row["mean"]["value"], row["by"], len(row["runs"])) == (1.0, "alice", 1)
    with hub.client(None) as client:
        page = client.get(f"/{OWNER}/locks/versions/1.0.0/board?environment=locks&split=test&level=verified")
        run = client.get(f"/runs/{row['runs'][0]}")
    assert "does not prove which model answers" in page.text
    assert "sha256" in run.text


@slow
def test_the_streamed_answers_of_a_model_are_passed_on_and_counted(hub: VerifiedHub) -> None:
    code = "print(ask(base_url, model, prompt, stream=True))\nawait turn(0)"
    hub.model.answer = lambda asked: {"role": "assistant", "content": code if not asked.get("stream") else "a b c"}
    receipt = hub.run(harness="root/puppet@1.0.0", tasks=1)
    output = hub.output(receipt)
    assert '{\\"content\\": \\"c\\"}' in output or '"content": "c"' in output
    assert "[DONE]" in output
    assert "usage" not in output, "the harness has not asked for the numbers of tokens"
    assert [(call["inputTokens"], call["outputTokens"]) for call in receipt["calls"]] == [(11, 3)] * 2
    assert hub.model.asked[-1]["stream_options"] == {"include_usage": True}


@slow
def test_only_the_harness_gets_an_episode_of_a_verified_run(hub: VerifiedHub) -> None:
    key = hub.begin(tasks=1)
    for who in ("alice", "bob", "root"):
        with hub.client(who) as client:
            for method, path in (("POST", "episodes"), ("GET", "episodes"), ("POST", "episodes/0/end")):
                answer = client.request(method, f"/api/v1/runs/{key}/{path}", json={})
                assert answer.status_code == 409, answer.text
    with hub.client("bob") as client:
        assert client.post(f"/api/v1/runs/{key}/end").status_code == 403
        assert client.get(f"/api/v1/runs/{key}/outputs").status_code == 403
    assert ends(hub.receipt(key)) == [(1.0, 1.0, "completed")]


@slow
def test_the_key_of_the_account_is_in_no_file_no_answer_and_no_log(hub: VerifiedHub) -> None:
    hub.model.answer = lambda asked: right_turn(asked) if "lock-" in json.dumps(asked) else {"content": "Hi."}
    receipt = hub.run(tasks=1)
    key = receipt["statement"]["run"]
    assert hub.model.headers[-1]["Authorization"] == f"Bearer {SECRET}", "the endpoint got it"
    with hub.client() as client:
        for path in (f"/api/v1/runs/{key}", f"/api/v1/runs/{key}/calls", f"/api/v1/runs/{key}/outputs", f"/runs/{key}"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert SECRET not in answer.text
    assert SECRET not in json.dumps(receipt)
    assert SECRET not in hub.process.log()
    for file in hub.process.data.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


@slow
def test_a_key_with_other_characters_is_refused_without_being_shown(hub: VerifiedHub) -> None:
    answer = hub.register(apiKey="sk with spaces")
    assert answer.status_code == 400
    assert "apiKey" in answer.text
    assert "with spaces" not in answer.text


@slow
def test_a_run_survives_the_death_of_its_hub_and_keeps_the_rows_that_had_ended(start_hub: Any) -> None:
    hub = start_hub(episodes=1)
    held = asyncio.Event()
    seen: list[str] = []

    def answer(asked: dict[str, Any]) -> Any:
        text = json.dumps(asked["messages"])
        if "lock-" not in text:
            return {"content": "Hi."}
        seen.append(text)
        return held.wait() if len(seen) == 2 else right_turn(asked)

    hub.model.answer = answer
    key = hub.begin(tasks=3)
    block_until(lambda: len(seen) == 2, 60)
    hub.process.kill()
    hub.process.start()
    receipt = hub.receipt(key)
    assert ends(receipt) == [(1.0, 1.0, "completed")] * 3
    assert [row["attempts"] for row in receipt["episodes"]] == [1, 2, 1]
    shown = [(call["place"], call["attempt"], call["status"]) for call in receipt["calls"]]
    assert shown == [(0, 1, 200), (1, 1, 0), (1, 2, 200), (2, 1, 200)], "the call that was cut off counts, too"
    found = Receipt.model_validate(receipt)
    verify_receipt(found, found.episodes, None, found.calls)


@slow
@pytest.mark.parametrize("lost", ["harness", "key"])
def test_a_run_whose_harness_or_key_is_gone_after_a_restart_ends(start_hub: Any, kind: str, lost: str) -> None:
    if kind != "sqlite":
        pytest.skip("the test changes the file of the database")
    hub = start_hub()
    held = asyncio.Event()
    hub.model.answer = lambda asked: {"content": "Hi."} if "lock-" not in json.dumps(asked) else held.wait()
    key = hub.begin(tasks=3)
    block_until(lambda: len(hub.model.asked) == 3, 90)
    hub.process.kill()
    if lost == "harness":
        with sqlite3.connect(hub.process.data / "hub.sqlite") as database:
            database.execute("UPDATE verified_runs SET harness_sha256 = ?", ("0" * 64,))
        database.close()
    else:
        (hub.process.data / "verified.key").write_bytes(Fernet.generate_key())
    hub.process.start()
    assert ends(hub.receipt(key)) == [(None, 0.0, "closed")] * 2 + [(None, 0.0, "not_begun")]


@slow
def test_a_run_that_its_account_ends_counts_what_is_missing_with_the_lowest_reward(hub: VerifiedHub) -> None:
    held = asyncio.Event()
    hub.model.answer = lambda asked: {"content": "Hi."} if "lock-" not in json.dumps(asked) else held.wait()
    key = hub.begin(tasks=4)
    block_until(lambda: len(hub.model.asked) == 3, 60)
    with hub.client() as client:
        assert client.post(f"/api/v1/runs/{key}/end").json()["state"] == "ended"
    assert ends(hub.receipt(key)) == [(0.0, 0.0, "closed")] * 2 + [(None, 0.0, "not_begun")] * 2


@slow
def test_an_account_has_a_bounded_number_of_open_runs(hub: VerifiedHub) -> None:
    held = asyncio.Event()
    hub.model.answer = lambda asked: {"content": "Hi."} if "lock-" not in json.dumps(asked) else held.wait()
    keys = [hub.begin(tasks=1) for _ in range(3)]
    refused = hub.register(tasks=1)
    assert refused.status_code == 429, refused.text
    with hub.client() as client:
        for key in keys:
            client.post(f"/api/v1/runs/{key}/end")


@slow
def test_a_run_is_removed_with_all_others_of_the_same_harness_and_model(hub: VerifiedHub) -> None:
    keys = [hub.receipt(hub.begin(tasks=1, harness="root/looper@1.0.0"))["statement"]["run"] for _ in range(2)]
    with hub.client() as client:
        assert client.post(f"/api/v1/runs/{keys[0]}/remove", json={"reason": "a mistake"}).status_code == 200
        assert client.get(f"/api/v1/runs/{keys[1]}").json()["removal"]["reason"] == "a mistake"
        log = client.get("/api/v1/results/log").json()["entries"]
    assert {(one["run"], one["level"]) for one in log} >= {(key, "verified") for key in keys}
