"""What programs that attack a sandbox begin with: `attempt` prints BREACH where a call succeeds."""

from __future__ import annotations

from typing import Final

ATTEMPT: Final = """
import array, ctypes, errno, fcntl, glob, os, resource, signal, socket, struct, sys, termios, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(function, *values):
    try: print("BREACH", function, values, repr(function(*values))[:200], flush=True)
    except OSError as error: print("refused", errno.errorcode.get(error.errno, error), flush=True)
def forever():
    while True: time.sleep(1)
keeper = os.getppid()
"""
