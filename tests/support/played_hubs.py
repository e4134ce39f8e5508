"""Hubs in processes of their own, over a server that plays, and the episodes that tests play on them."""

from __future__ import annotations

import re
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from results_hub import Player

from ludus.client.agent_endpoint import open_agent_endpoint

ENDED = ("step_limit", "completed")
"""The ends of an episode in which the lowest number is guessed again and again; seldom it is the right one."""

HUB = Path(__file__).with_name("hub_sites.py")


def start(data: Path, play_url: str, *more: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start a hub in a process of its own, and return its address."""
    command = [sys.executable, str(HUB), str(data), play_url, *more]
    with (data.parent / "hub.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], 60)
    line = process.stdout.readline().decode() if readable else ""
    assert " at http" in line, (data.parent / "hub.log").read_text()
    return process, line.split(" at ")[1].split()[0]


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()


async def act(player: Player, *, whole: bool) -> dict[str, Any]:
    """Play the next episode of a run to its end, or begin it."""
    ticket = await player.next()
    assert ticket is not None
    async with open_agent_endpoint(ticket["playUrl"]) as episode:
        found = re.search(r"from (\d+) to", str(episode.prompt[0].content))
        assert found is not None
        while whole and not episode.ended:
            await episode.call("guess", number=int(found[1]))
    return ticket
