"""`ludus eval verify` as a person uses it, and a stock client of MCP in the sandbox of a harness."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from verified_hub import MODEL, SECRET, VerifiedHub

pytestmark = [pytest.mark.timeout(180), pytest.mark.suite("hub")]


def ludus(hub: VerifiedHub, *arguments: str) -> tuple[int, str, str]:
    """Run the command against a hub, and return its exit code and what it printed."""
    variables = {
        **os.environ, "LUDUS_HUB": hub.process.url, "LUDUS_HUB_TOKEN": hub.tokens["alice"], "OPENAI_API_KEY": SECRET,
    }  # fmt: skip
    command = [sys.executable, "-m", "ludus.cli", "eval", "verify", *arguments]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def test_a_person_asks_for_a_verified_run(hub: VerifiedHub) -> None:
    where = ["root/locks@1.0.0", "--model", f"openai:{MODEL}", "--base-url", hub.model.url, "--tasks", "2"]
    code, out, errors = ludus(hub, *where, "--option", "temperature=0.5")
    assert code == 0, errors
    assert "mean 1.0000" in out
    assert "level=verified" in errors
    assert SECRET not in out + errors
    assert hub.model.headers[-1]["Authorization"] == f"Bearer {SECRET}"
    assert hub.model.asked[-1]["temperature"] == 0.5
    code, out, errors = ludus(hub, *where, "--detach", "--json")
    assert code == 0, errors
    assert json.loads(out)["level"] == "verified"
    hub.receipt(json.loads(out)["key"])


def test_a_run_that_the_hub_refuses_says_why(hub: VerifiedHub) -> None:
    code, _, errors = ludus(hub, "root/locks@1.0.0", "--model", MODEL, "--base-url", "http://10.0.0.1/v1")
    assert code != 0
    assert "https only" in errors
    code, _, errors = ludus(hub, "root/locks@1.0.0", "--model", "anthropic:m")
    assert code != 0
    assert "openai:NAME" in re.sub(r"\s+", " ", errors)


def test_a_stock_client_of_mcp_plays_inside(hub: VerifiedHub) -> None:
    code = """
from mcp import Client
async with Client(play_url) as agent:
    print("tools", sorted(tool.name for tool in (await agent.list_tools()).tools))
    result = await agent.call_tool("turn", {"number": 1})
    print("answer", result.model_dump_json())
"""
    receipt, output = hub.play(code)
    assert "tools ['look', 'turn']" in output
    assert "It turns." in output
    assert "reward" not in output.partition("answer")[2]
    assert receipt["episodes"][0]["end"] == "completed"
