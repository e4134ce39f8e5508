"""The preStop hook of a server's pod: let the cluster notice that the pod stops, then wait until no episode runs.

    python3 drain.py PAUSE_SECONDS DRAIN_SECONDS

With a journal there is nothing to wait for: the next process has the episodes. The number of episodes is shown to a
valid token only, which the variable LUDUS_TOKEN holds.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request

ADDRESS = os.environ.get("LUDUS_ADDRESS", "http://127.0.0.1:8000")
LOOK_SECONDS = 1.0


def running() -> "int | None":
    """Return the number of running episodes; None if it is not shown."""
    headers = {"Authorization": "Bearer " + os.environ.get("LUDUS_TOKEN", "")}
    request = urllib.request.Request(ADDRESS + "/ready", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer).get("running")
    except urllib.error.HTTPError as error:
        return json.load(error).get("running")
    except (OSError, ValueError):
        return None


def main() -> None:
    """Wait."""
    time.sleep(float(sys.argv[1]))
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end and running():
        time.sleep(LOOK_SECONDS)


main()
