"""Finds the address of a server in a Ray cluster, under the name that the server has there.

The question is asked by a process of its own, so that the caller is no part of the cluster, and its own use of Ray is
not disturbed.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import subprocess
import sys
from typing import Any, Final

from ludus.protocol.errors import ConnectionFailed

SCHEME: Final = "ludus+ray"
"""The scheme of such names: `ludus+ray://CLUSTER/NAME`."""

NAMESPACE: Final = "ludus"
"""Ray's namespace of the addresses of servers."""

LOOK_SECONDS: Final = 60.0
"""How long the search may take."""

ANSWER_SECONDS: Final = 10.0
"""How long the entry may take to answer."""


def find_server(cluster: str, name: str) -> str:
    """Return the address of a server.

    Args:
        cluster: the address of the Ray cluster, `auto` or `host:port`.
        name: the name of the server (`ludus serve --ray … --ray-name NAME`).

    Raises:
        ConnectionFailed: there is no such server or cluster, or Ray is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConnectionFailed(
            f"{SCHEME}://{cluster}/{name} needs the package ray; install it with: pip install 'ludus-rl[ray]'"
        )
    command = [sys.executable, "-m", "ludus.client._ray_lookup", cluster, name]
    try:
        finished = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LOOK_SECONDS, text=True
        )
    except subprocess.TimeoutExpired:
        reply = {"error": f"the cluster did not answer within {LOOK_SECONDS:g} s"}
    else:
        ended = {"error": "the search ended without an answer: " + " ".join(finished.stderr.splitlines()[-1:])}
        reply = json.loads(finished.stdout.splitlines()[-1]) if finished.stdout else ended
    if "error" in reply:
        raise ConnectionFailed(f"cannot find the server {name!r} in the Ray cluster at {cluster}: {reply['error']}")
    url: str = reply["url"]
    return url


def _search(cluster: str, name: str) -> dict[str, str]:
    import ray
    from ray.exceptions import RayError

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address=cluster, namespace=NAMESPACE, logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # Ray raises errors of many kinds
        return {"error": (str(error).strip().splitlines() or [type(error).__name__])[0]}
    try:
        url: Any = ray.get(ray.get_actor(name).url.remote(), timeout=ANSWER_SECONDS)
        return {"url": url}
    except ValueError:
        return {"error": "no running server has this name; start one with --ray-name, or check the name"}
    except RayError:
        return {"error": "the server that had this name has ended"}


def main() -> None:
    """Print what was found as a line of JSON."""
    line = json.dumps(_search(sys.argv[1], sys.argv[2]))
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
