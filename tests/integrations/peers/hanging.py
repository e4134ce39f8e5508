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


def count_outcomes():
    """Return a function that counts the outcomes which this process has got from now on.

    The server has ended an episode before its player asks for the outcome. A server that is killed in between takes
    the outcome with it.
    """
    from ludus.client import Driver

    finish, outcomes = Driver.finish, []

    @functools.wraps(finish)
    async def counting(self, *args, **options):
        outcome = await finish(self, *args, **options)
        outcomes.append(outcome)
        return outcome

    Driver.finish = counting
    return lambda: len(outcomes)


def waiter(base_url: str, url: str, model: str, episodes: int, players_here: bool):
    """Return a function that waits until half of the episodes have ended and the other half hangs in a step.

    With `players_here`, it also waits until this process, which plays them, has the outcomes of the first half.
    """
    requests = base_url.removesuffix("/v1") + "/requests"
    expected = number(requests, rf'"{model}": ') + episodes + episodes // 2
    outcomes = count_outcomes() if players_here else lambda: episodes // 2
    pause = threading.Event()

    def wait() -> None:
        while (
            number(requests, rf'"{model}": ') < expected
            or number(url + "/metrics", RUNNING) != episodes // 2
            or outcomes() < episodes // 2
        ):
            pause.wait(0.05)

    return wait


def signal_when_half_hang(
    base_url: str,
    url: str,
    model: str,
    episodes: int,
    process: int,
    code: int = signal.SIGKILL,
    players_here: bool = True,
) -> None:
    """Send a signal to a process, from a thread, when half of the episodes hang; see `waiter`."""
    hanging = waiter(base_url, url, model, episodes, players_here)
    kill = functools.partial(os.kill, process, code)
    threading.Thread(target=lambda: (hanging(), kill()), daemon=True).start()
