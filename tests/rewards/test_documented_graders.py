"""The graders of docs/sandboxes.md: an honest program earns 1, and what fooled the page's first grader earns 0."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sandboxing import NEEDS_BUBBLEWRAP

from ludus.server import Environment
from ludus.server.tasks.loading import load_environment

SNIPPETS = Path(__file__).parents[2] / "docs" / "snippets"
Host = Callable[[type[Environment[Any]]], Awaitable[Any]]

EQUAL = "class Same:\n    def __eq__(self, other): return True\ndef add(a, b): return Same()\n"
PROGRAMS = {
    "honest": ("def add(a, b):\n    return a + b\n", 1.0),
    "half right": ("def add(a, b):\n    return 5\n", 0.5),
    "ends at import": ("import os\nos._exit(0)\n", 0.0),
    "ends in the call": ("import os\ndef add(a, b):\n    os._exit(0)\n", 0.0),
    "equal to everything": (EQUAL, 0.0),
    "missing": (None, 0.0),
}


@pytest.mark.suite("breadth", first=1)
@NEEDS_BUBBLEWRAP
@pytest.mark.parametrize("source", ["coding.py:Coding", "graded.py:Graded"])
async def test_a_program_earns_what_its_values_are_worth(
    playing: Host, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.syspath_prepend(SNIPPETS)
    cls = load_environment(f"{SNIPPETS}/{source}")
    host = await playing(cls)
    for text, worth in PROGRAMS.values():
        (episode,) = await host.start()
        if text is not None:
            await host.step(episode, 1, "shell", command=f"cat > answer.py <<'E'\n{text}E\n")
        reward = (await host.grade(episode, "Done.")).reward
        assert reward.value == worth, text
