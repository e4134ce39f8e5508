"""How to use a version: snippets to copy, each complete and true for this hub."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from ludus.hub.registry.catalog import VersionRecord
from ludus.registry.types.packages import EnvironmentEntry

LOCAL_SERVER: Final = "http://127.0.0.1:8000"
"""The address of a server that `ludus serve` has started on the user's machine."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """One way to use an environment.

    Attributes:
        title: what it is for.
        language: the language of the code, as a word.
        code: the code.
        note: what else to know; may be empty.
    """

    title: str
    language: str
    code: str
    note: str = ""


def badge_code(hub_url: str, package: str) -> list[Snippet]:
    """Return what shows the badge of a package in a README or on a page. Names of packages need no escaping."""
    page = f"{hub_url}/{package}"
    text = f"{package} on a Ludus hub"
    return [
        Snippet("Markdown", "markdown", f"[![{text}]({page}/badge.svg)]({page})"),
        Snippet("HTML", "html", f'<a href="{page}"><img src="{page}/badge.svg" alt="{text}"></a>'),
    ]


def snippets(
    record: VersionRecord, hub_url: str, file_url: str, endpoint: str | None, host: str | None = None
) -> list[Snippet]:
    """Return the snippets of a version.

    Args:
        record: the version.
        hub_url: the address of the hub.
        file_url: the address of the wheel.
        endpoint: the base URL where the version runs; None if the hub runs no environments.
        host: the same at its own host name, for clients that ignore a path; None if it has none.
    """
    requirement = f"{record.distribution} @ {file_url}#sha256={record.sha256}"
    unsigned = "" if record.signed else " --allow-unsigned"
    found = [
        Snippet(
            "ludus install", "shell", f"ludus install {record.id}@{record.version} --hub {hub_url}{unsigned}",
            "Checks the publisher's signature." if record.signed else "This version has no signature to check.",
        ),
        Snippet("pip", "shell", f'pip install "{requirement}"', "Checks the digest of the wheel, not who made it."),
        Snippet("uv", "shell", f'uv pip install "{requirement}"', "Checks the digest of the wheel, not who made it."),
    ]  # fmt: skip
    entry = record.environments[0]
    split = next((one.name for one in entry.splits if one.type == "train"), "train")
    serve, url, note = f"ludus serve {entry.source}\n", LOCAL_SERVER, "Install it first."
    if endpoint is not None:
        serve, url, note = "", endpoint, "A hub with tokens needs yours in LUDUS_TOKEN."
    comment = f"# {serve}" if serve else ""
    return [
        *found,
        Snippet("Python client", "python", comment + _client(entry.name, split, url), note),
        *([Snippet("ORS client", "python", _ors(entry.name, split, host), _HOST_NOTE)] if host is not None else []),
        Snippet("MCP host", "json", _host(entry.name, entry.source, endpoint), "For the configuration of an MCP host."),
        Snippet("TRL", "python", comment + _trl(entry.name, split, url), f"{note} Needs TRL and a model."),
        Snippet("ludus train", "shell", _train(entry, split, url, serve), note),
    ]


def _client(name: str, split: str, url: str) -> str:
    return (
        "import asyncio\n\nfrom ludus.client import connect\n\n\n"
        "async def main() -> None:\n"
        f'    async with connect("{url}") as client:\n'
        f"        async with client.environment({json.dumps(name)}).episode(split={json.dumps(split)}) as episode:\n"
        "            print(episode.prompt)\n"
        "            print([tool.name for tool in episode.tools])\n\n\n"
        "asyncio.run(main())\n"
    )


_HOST_NOTE: Final = "The client of ors-sdk ignores a path in its address, so the version has a host name of its own."


def _ors(name: str, split: str, host: str) -> str:
    return (
        "from ors.client import ORS\n\n"
        f'client = ORS("{host}")\n'
        f"with client.environment({json.dumps(name)}).session(split={json.dumps(split)}, index=0) as session:\n"
        "    print(session.get_prompt())\n"
        "    print([tool.name for tool in session.list_tools()])\n"
    )


def _host(name: str, source: str, endpoint: str | None) -> str:
    if endpoint is not None:
        server: dict[str, object] = {"type": "http", "url": f"{endpoint}/mcp"}
    else:
        server = {"command": "ludus", "args": ["serve", source, "--stdio", "--environment", name, "--play-only"]}
    return json.dumps({"mcpServers": {name: server}}, indent=2) + "\n"


def _trl(name: str, split: str, url: str) -> str:
    return (
        "from datasets import Dataset\nfrom trl import GRPOConfig, GRPOTrainer\n\n"
        "from ludus.client import ServerAddress\n"
        "from ludus.integrations.trl import outcome_reward, rows\n"
        "from ludus.integrations.trl_rollout import LudusRollout\n\n"
        f"tasks = rows(ServerAddress({json.dumps(url)}), {json.dumps(name)}, {json.dumps(split)}, n=256, seed=1)\n"
        "trainer = GRPOTrainer(\n"
        '    model="Qwen/Qwen3-0.6B",\n'
        '    args=GRPOConfig(output_dir="grpo-ludus", num_generations=8, report_to="none"),\n'
        "    reward_funcs=[outcome_reward],\n"
        "    train_dataset=Dataset.from_list(tasks),\n"
        "    rollout_func=LudusRollout(max_turns=8),\n"
        ")\n"
        "trainer.train()\n"
    )


def _train(entry: EnvironmentEntry, split: str, url: str, serve: str) -> str:
    start = f"{serve.rstrip()} &\n" if serve else ""
    names = [one.name for one in entry.splits]
    kept = next((one.name for one in entry.splits if one.type != "train"), split)
    evaluation = f"[evaluation]\nsplit = {json.dumps(kept)}\n" if "test" not in names else ""
    return (
        f"{start}cat > run.toml <<'END'\n[[environments]]\nurl = \"{url}\"\nname = {json.dumps(entry.name)}\n"
        f"split = {json.dumps(split)}\n{evaluation}END\n"
        "ludus train run.toml --model.path=Qwen/Qwen3-0.6B --output=runs/first\n"
    )
