"""The command line that carries out a request in a sandbox: Python, with the program and the request as arguments."""

from __future__ import annotations

import base64
import inspect
import json
import shlex
import zlib
from functools import cache
from typing import Any, Final

from ludus.sandbox.inside import files
from ludus.sandbox.services import helper, helper_run

_MESSAGES: Final = """
PIECE = 1 << 20
class Refused(Exception): pass
class Incoming: pass
class Outgoing: pass
"""
_BOOT: Final = """
import sys, types, json, zlib, base64
for name, text in json.loads(zlib.decompress(base64.b64decode(sys.argv[1]))):
    module = sys.modules[name] = types.ModuleType(name)
    for above, below in ((name.rpartition(".")[0], name.rpartition(".")[2]),):
        setattr(sys.modules.setdefault(above, types.ModuleType(above)), below, module)
    exec(compile(text, name, "exec"), module.__dict__)
module.main(sys.argv[2])
"""
INLINE: Final = 48 * 1024
"""The largest request that is a part of the command line; Linux allows 128 KiB for one argument."""


@cache
def _packed() -> str:
    """Return the modules that run in the sandbox, compressed."""
    modules = [("ludus.sandbox.inside.messages", _MESSAGES)]
    modules += [(module.__name__, inspect.getsource(module)) for module in (files, helper_run, helper)]
    return base64.b64encode(zlib.compress(json.dumps(modules).encode(), 9)).decode()


def command_line(token: str, payload: bytes | str) -> str:
    """Return a line for a POSIX shell that carries out a request; `shlex.split` makes the same words of it.

    Args:
        token: the sandbox's token, which marks the process.
        payload: the request, or the path of a file with it.
    """
    argument = base64.b64encode(payload).decode() if isinstance(payload, bytes) else "@" + payload
    return shlex.join(["python3", "-I", "-S", "-c", _BOOT, _packed(), argument, token])


def pack(request: dict[str, Any], data: bytes) -> bytes:
    """Return a request or an answer as bytes: the length of its JSON, the JSON, and its data."""
    text = json.dumps(request).encode()
    return len(text).to_bytes(4, "big") + text + data


def unpack(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Return an answer and its data.

    Raises:
        ValueError: these are not an answer.
    """
    size = int.from_bytes(payload[:4], "big")
    answer = json.loads(payload[4 : 4 + size])
    if not isinstance(answer, dict):
        raise ValueError("the answer is not an object")
    return answer, payload[4 + size :]


def find_answer(text: str, mark: str) -> bytes | None:
    """Return the payload on the last line of standard output; b"" if it is in a file, None if there is none.

    Raises:
        ValueError: the line is not base64.
    """
    for line in reversed(text.splitlines()):
        head, _, encoded = line.partition(" ")
        if head == mark:
            return b"" if encoded == "@" else base64.b64decode(encoded, validate=True)
    return None
