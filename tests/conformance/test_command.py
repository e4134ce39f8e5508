"""`ludus conform` as people and scripts run it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port
from planting import frames
from worlds import Playground

from ludus.conformance import CHECKS, conform
from ludus.environments.guess_number import GuessNumber
from ludus.protocol.errors import ConnectionFailed, EnvironmentNotFound, KeyConflict, SplitNotFound, Unauthenticated
from ludus.protocol.lifecycle import EndReason
from ludus.server import ServerLimits
from ludus.server.serving.serve import LudusServer

ROOT = Path(__file__).parents[2]
LUDUS = Path(sys.executable).with_name("ludus")
Serve = Callable[..., Awaitable[LudusServer]]
CONFLICT = re.compile(rf'"code": ?{KeyConflict.code}\b')
"""An error reply; the digits alone are also in some ids and times."""


async def ludus(*arguments: str) -> tuple[int, str, str]:
    """Run the command next to the server in this loop: exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        LUDUS, "conform", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "PATH": ""},
    )  # fmt: skip
    async with asyncio.timeout(50):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.mark.suite("planted-faults")
async def test_a_conforming_server_exits_with_0_and_the_report_goes_where_it_was_asked_to(
    serve: Serve, tmp_path: Path
) -> None:
    server = await serve(Playground)
    out = tmp_path / "report.json"
    code, shown, _ = await ludus(server.url, "--wire", "channel", "--wire", "play", "--out", str(out))
    assert code == 0, shown
    report = json.loads(out.read_text(encoding="utf-8"))
    assert (report["conforms"], report["url"], report["wires"]) == (True, server.url, ["channel", "play"])
    assert (report["standard"], report["version"], report["profile"]) == ("dev.ludus/episodes", "0.2", "ludus")
    assert (report["environment"], report["split"]) == ("playground", "train")
    assert sum(report["counts"].values()) == len(report["checks"]) == len(CHECKS["channel"]) + len(CHECKS["play"])
    assert report["counts"]["failed"] == report["counts"]["noted"] == 0
    for check in report["checks"]:
        assert set(check) == {
            "wire", "check", "title", "requirements", "module", "negative", "status", "detail", "seconds"
        }  # fmt: skip
        assert check["requirements"]
        assert (check["status"] == "passed") == (check["detail"] == "")
    assert report["modules"]["play"]["passed"] > 10
    assert report["modules"]["tokens"]["announced"] is False
    assert re.search(r"^tokens \(not announced\) +0 +0 +0 +[1-9]", shown, re.MULTILINE), shown
    for title in ("a step repeated under its key runs once", "no reply contains a reward"):
        assert title in shown


@pytest.mark.suite("planted-faults")
async def test_the_page_shows_the_counts_of_a_built_in_environment(serve: Serve) -> None:
    server = await serve(GuessNumber)
    code, shown, _ = await ludus(server.url)
    assert code == 0, shown
    table = [line.rstrip() for line in shown[shown.index("\nmodule ") :].strip().splitlines()]
    page = (ROOT / "docs" / "conform.md").read_text(encoding="utf-8")
    assert "\n".join(table) in page, shown
    counts = table[-1]
    assert f'"passed": {re.findall("([0-9]+) passed", counts)[0]},' in page


@pytest.mark.suite("planted-faults")
async def test_a_fault_exits_with_1_and_is_reported_with_its_requirement(serve: Serve) -> None:
    server = await serve(Playground)
    host: Any = server.app.context.host
    close = host.close

    async def lose(params: Any, principal: Any) -> Any:
        result = await close(params, principal)
        return result.model_copy(update={"info": result.info.model_copy(update={"end_reason": EndReason.EXPIRED})})

    host.close = lose
    code, shown, _ = await ludus(server.url, "--wire", "channel")
    assert code == 1
    assert "✗ channel closing ends the episode" in shown
    assert "the end: expected ('truncated', 'closed'), found" in shown
    assert "[CLOSE-1]" in shown
    code, shown, _ = await ludus(server.url, "--wire", "channel", "--json")
    assert code == 1
    report = json.loads(shown)
    assert not report["conforms"]
    assert report["counts"]["failed"] >= 1


async def test_wrong_options_are_refused_before_anything_is_asked() -> None:
    code, _, told = await ludus("http://127.0.0.1:1", "--wire", "pigeon")
    assert code == 2
    assert "channel, mcp, play, ors" in told
    assert (await ludus("http://127.0.0.1:1", "--parallel", "0"))[0] == 2


async def test_a_server_that_cannot_be_reached_is_no_failed_check() -> None:
    code, shown, told = await ludus(f"http://127.0.0.1:{free_port()}")
    assert (code, shown) == (4, "")
    assert "answers on no transport" in told


async def test_an_environment_or_split_that_is_not_there_is_named(serve: Serve) -> None:
    server = await serve(Playground)
    code, _, told = await ludus(server.url, "--environment", "chess")
    assert code == 3
    assert "no environment 'chess'; it has playground" in told
    with pytest.raises(EnvironmentNotFound):
        await conform(server.url, environment="chess")
    with pytest.raises(SplitNotFound, match="train, validation, test, endless"):
        await conform(server.url, split="dev")


async def test_a_missing_or_wrong_token_is_reported_before_any_check(serve: Serve, credentials: Any) -> None:
    server = await serve(Playground, variables=credentials.variables)
    code, _, told = await ludus(server.url)
    assert code == 3
    assert "requires a token" in told
    with pytest.raises(Unauthenticated, match="does not accept this token"):
        await conform(server.url, token="ludus_nobody")


async def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    served: list[asyncio.Task[Any] | None] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())
        await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server, asyncio.timeout(20):
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailed):
            await conform(f"http://127.0.0.1:{port}", seconds=0.3)
        await asyncio.gather(*(task for task in served if task is not None), return_exceptions=True)
    assert served


@pytest.mark.suite("planted-faults")
async def test_checks_whose_answers_never_come_fail_and_the_others_go_on(serve: Serve) -> None:
    server = await serve(Playground)
    app: Any = server.app

    def sent(scope: Any, message: Any) -> Any:
        return {"type": "websocket.send", "text": "[]"} if CONFLICT.search(str(message.get("text"))) else message

    app._outermost = frames(app._outermost, sent=sent)
    async with asyncio.timeout(55):
        report = await conform(server.url, wires=["channel"], seconds=8.0)
    failed = {verdict.check: verdict.detail for verdict in report.of("failed")}
    assert set(failed) == {"start_key", "step_key", "turn_key", "grade_key"}
    assert set(failed.values()) == {"no reply arrived within 8 s"}
    assert app.context.host.stats().running == 0


@pytest.mark.suite("planted-faults")
async def test_a_server_with_little_room_is_checked_one_check_at_a_time(serve: Serve) -> None:
    server = await serve(Playground, limits=ServerLimits(max_episodes=8, queue_seconds=20.0, grace_seconds=0.3))
    report = await conform(server.url, wires=["channel"], parallel=1)
    assert [verdict for verdict in report.verdicts if verdict.status == "failed"] == []


def test_every_check_names_sentences_of_the_standard_and_has_a_name_of_its_own() -> None:
    manifest = tomllib.loads((ROOT / "spec" / "requirements.toml").read_text(encoding="utf-8"))
    for wire, checks in CHECKS.items():
        names = [check.name for check in checks]
        assert len(set(names)) == len(names), wire
        for check in checks:
            assert check.requirements, check.name
            assert set(check.requirements) <= set(manifest), check.name
