"""Kill a server when half of the episodes of `hanging_sums` hang in a step and the others have ended."""

import functools
import os
import re
import signal
import threading
import urllib.request

RUNNING = r"^ludus_episodes_running(?:\{[^}]*\})? "


def number(url: str, pattern: str) -> int:
    """Return the first number that a page shows after a pattern; 0 if it shows none."""
    with urllib.request.urlopen(url, timeout=10) as reply:
        found = re.search(pattern + r"(\d+)", reply.read().decode(), re.MULTILINE)
    return int(found[1]) if found else 0


def waiter(base_url: str, url: str, model: str, episodes: int):
    """Return a function that returns when half of the episodes have ended and the other half hangs in a step."""
    requests = base_url.removesuffix("/v1") + "/requests"
    expected = number(requests, rf'"{model}": ') + episodes + episodes // 2
    pause = threading.Event()

    def wait() -> None:
        while number(requests, rf'"{model}": ') < expected or number(url + "/metrics", RUNNING) != episodes // 2:
            pause.wait(0.05)

    return wait


def signal_when_half_hang(
    base_url: str, url: str, model: str, episodes: int, process: int, code: int = signal.SIGKILL
) -> None:
    """Send a signal to a process, from a thread, when half of the episodes hang."""
    hanging, kill = waiter(base_url, url, model, episodes), functools.partial(os.kill, process, code)
    threading.Thread(target=lambda: (hanging(), kill()), daemon=True).start()
