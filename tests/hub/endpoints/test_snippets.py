"""The snippets that the site shows for a version do what they say."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shlex
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client

from ludus.client import ServerAddress
from ludus.hub.access.viewers import STRANGER
from ludus.hub.app import parts_of
from ludus.hub.site.recipes import place_of, recipes
from ludus.hub.site.usage import snippets
from ludus.integrations.trl import outcome_reward, rows
from ludus.trainer.core.settings import read_config

pytestmark = pytest.mark.timeout(120)


def of(hub: Any, *, endpoint: bool = True) -> dict[str, str]:
    """The snippets of `ada/counter`, by title."""
    record = parts_of(hub.app).hub.catalog_of(STRANGER).version("ada", "counter")
    file_url = f"{hub.url}/files/{record.sha256}/{record.filename}"
    return {one.title: one.code for one in snippets(record, hub.url, file_url, hub.address() if endpoint else None)}


async def run(*command: str, **variables: str) -> str:
    """Run a program, which must succeed, and return what it writes."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env={**os.environ, **variables}
    )
    output = (await asyncio.wait_for(process.communicate(), 100))[0].decode()
    assert process.returncode == 0, output
    return output


@pytest.mark.suite("hub-endpoints")
async def test_the_client_plays_at_the_endpoint(hub: Any) -> None:
    said = await run(sys.executable, "-W", "error", "-c", of(hub)["Python client"])
    assert "Add, at version 1.0.0." in said
    assert "'add'" in said


async def test_the_command_of_the_hub_installs_the_version(hub: Any, tmp_path: Path) -> None:
    command = of(hub)["ludus install"].split()
    assert command[0] == "ludus"
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    said = await run(
        sys.executable, "-m", "ludus.cli", *command[1:], "--no-deps", "--installer", "uv", "--python", str(python),
        LUDUS_CONFIG_DIR=str(tmp_path / "config"),
    )  # fmt: skip
    assert "Installed ada/counter 1.0.0" in said
    assert list((tmp_path / "venv").rglob("ada_counter.py"))


@pytest.mark.suite("hub-endpoints")
async def test_an_mcp_host_finds_the_tools(hub: Any, tools: Any, tmp_path: Path) -> None:
    (server,) = json.loads(of(hub)["MCP host"])["mcpServers"].values()
    assert server["type"] == "http"
    async with McpClient(server["url"]) as host:
        assert "start_episode" in {tool.name for tool in (await host.list_tools()).tools}
    (server,) = json.loads(of(hub, endpoint=False)["MCP host"])["mcpServers"].values()
    (tmp_path / "ada_counter.py").write_text(tools.counter.format(version="1.0.0"), encoding="utf-8")
    assert server["command"] == "ludus"
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "ludus.cli", *server["args"]], cwd=str(tmp_path),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
    )  # fmt: skip
    async with McpClient(stdio_client(started)) as host:
        assert {"add", "run"} <= {tool.name for tool in (await host.list_tools()).tools}


async def test_trl_gets_the_tasks_of_the_endpoint(hub: Any) -> None:
    """The model and the training need TRL, with which `make integrations` runs the same calls."""
    code = of(hub)["TRL"]
    compile(code, "snippet", "exec")
    for imported in ("from ludus.integrations.trl import outcome_reward, rows", "reward_funcs=[outcome_reward]"):
        assert imported in code
    assert list(inspect.signature(outcome_reward).parameters)[0] == "completions", "as TRL calls it"
    call = f'rows(ServerAddress("{hub.address()}"), "counter", "train", n=256, seed=1)'
    assert call in code
    found = await asyncio.to_thread(eval, call, {"rows": rows, "ServerAddress": ServerAddress})
    assert len(found) == 1, "the split has one task"
    assert "Add, at version 1.0.0." in str(found[0]["prompt"])


async def test_the_trainer_reads_the_file(hub: Any, tmp_path: Path) -> None:
    code = of(hub)["ludus train"]
    before, _, rest = code.partition("cat > run.toml <<'END'\n")
    text, _, command = rest.partition("\nEND\n")
    assert before == ""
    (tmp_path / "run.toml").write_text(text + "\n", encoding="utf-8")
    program, subcommand, _, *options = command.split()
    assert (program, subcommand) == ("ludus", "train")
    settings = read_config(tmp_path / "run.toml", options)
    (environment,) = settings.environments
    assert (environment.url, environment.name, environment.split) == (hub.address(), "counter", "train")


@pytest.mark.suite("hub-endpoints")
async def test_the_commands_of_other_trainers_write_the_tasks_of_the_endpoint(hub: Any, tmp_path: Path) -> None:
    record = parts_of(hub.app).hub.catalog_of(STRANGER).version("ada", "counter")
    commands = [
        shlex.split(line)[1:]
        for recipe in recipes(place_of(record.environments[0], hub.address()))
        for part in recipe.parts
        for line in part.text.splitlines()
        if line.startswith("ludus export ")
    ]
    assert len(commands) == 8, "two of each trainer that reads a file of tasks"
    for command in commands[-2:]:
        file = tmp_path / command[command.index("--out") + 1]
        command[command.index("--out") + 1] = str(file)
        await run(sys.executable, "-m", "ludus.cli", *command)
        assert hub.address() in file.read_text(encoding="utf-8")
