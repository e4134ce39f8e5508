"""Runs a command, and kills it and all its children as soon as the process that started this one has ended.

    python -I vllm_supervisor.py PROGRAM [ARGUMENT]...

It must be the leader of its process group, with a pipe as its standard input that only the starter holds open. The
operating system closes the starter's end when it ends in any way. Standard library only: it runs outside of Ludus.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main(command: list[str]) -> int:
    """Run the command and return its exit status; 128 plus the signal's number if a signal ended it, as shells do."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # the command gets it too, and decides
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_kill_when_orphaned, daemon=True).start()
    status = child.wait()
    return status if status >= 0 else 128 - status


def _kill_when_orphaned() -> None:
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
