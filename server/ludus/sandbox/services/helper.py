"""The program that carries out one request in a sandbox of a service. It is sent with every request; see `program`.

It needs Python 3.9 and only its standard library. If it starts as root, commands run under another user id without
privileges, so they can neither end nor change it.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import io
import json
import os
import sys

from ludus.sandbox.inside import files
from ludus.sandbox.inside.messages import Refused
from ludus.sandbox.services import helper_run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SUBREAPER, _DUMPABLE = 36, 4
_INLINE = 96 * 1024
"""The largest answer on standard output; a larger one is left in a file."""


def main(argument: str) -> None:
    """Carry out a request, and write the answer as the last line of standard output: the mark, and base64 or `@`.

    Args:
        argument: the request as base64, or `@` and the path of a file with it.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_DUMPABLE, 0, 0, 0, 0)  # commands of the same user can neither trace it nor open its standard output
    if argument.startswith("@"):
        with open(argument[1:], "rb") as uploaded:
            payload = uploaded.read()
        helper_run.quietly(os.unlink, argument[1:])
    else:
        payload = base64.b64decode(argument)
    size = int.from_bytes(payload[:4], "big")
    request, blob = json.loads(payload[4 : 4 + size]), payload[4 + size :]
    try:
        answer, data = _OPS[request["op"]](request, blob)
    except Refused as error:
        answer, data = {"refused": str(error)}, b""
    except OSError as error:
        answer, data = {"refused": f"{request.get('path', '')!r}: {error.strerror or error}"}, b""
    text = json.dumps(answer).encode()
    payload = len(text).to_bytes(4, "big") + text + data
    if len(payload) > _INLINE:
        descriptor = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            file.write(payload)
        line = "@"
    else:
        line = base64.b64encode(payload).decode()
    sys.stdout.write(f"\n{request['mark']} {line}\n")
    sys.stdout.flush()


def _start(request: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
    """Create the work directory, and find out as which user commands can run."""
    user = request["user"] if os.geteuid() == 0 and helper_run.can_become(request["user"]) else None
    for home in ("/box", os.path.join(os.path.expanduser("~"), "box")):
        try:
            os.makedirs(home, 0o755, exist_ok=True)
            if user is not None:
                os.chown(home, user, user)
            break
        except OSError as error:
            failure = error
    else:
        raise Refused(f"the work directory {home} cannot be created: {failure.strerror}")
    os.makedirs(request["control"], 0o700, exist_ok=True)
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
    return {"home": home, "user": user, "env": env}, b""


def _check_first(request: dict[str, Any]) -> None:
    """Raise Refused if this request was carried out before: a client may send a request again."""
    descriptor = os.open(os.path.join(request["control"], "last"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "r+b") as number_file:
        fcntl.flock(number_file, fcntl.LOCK_EX)
        if int(number_file.read() or b"0") >= request["number"]:
            raise Refused("repeated")
        number_file.seek(0)
        number_file.write(b"%d" % request["number"])


def _run(request: dict[str, Any], stdin: bytes) -> tuple[dict[str, Any], bytes]:
    _check_first(request)
    return helper_run.run(request, stdin)


def _end(request: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
    helper_run.end_others(request)
    return {}, b""


def _as_user(request: dict[str, Any]) -> dict[str, Any]:
    """Give up privileges, and return the configuration for file operations."""
    if request["user"] is not None:
        helper_run.become(request["user"])
    os.umask(0o022)
    return {"home": request["home"], "disk": {"bytes": request["disk"]}, "user": os.geteuid()}


def _read(request: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
    return _keep(request, lambda out, config: files.read_file(config, request, out))


def _write(request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    user = request["user"]
    if len(data) + helper_run.used(request["home"], user) > request["disk"]:
        raise Refused(f"{request['path']!r}: the disk is full")
    files.write_file(_as_user(request), request, io.BytesIO(data))  # type: ignore[arg-type]
    return {}, b""


def _list(request: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
    return _keep(request, lambda out, config: out.write(json.dumps(files.list_files(config, request)).encode()))


def _snapshot(request: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
    return _keep(request, lambda out, config: files.snapshot(config, out))


def _restore(request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    files.restore(_as_user(request), io.BytesIO(data))
    return {}, b""


def _keep(request: dict[str, Any], work: Any) -> tuple[dict[str, Any], bytes]:
    """Do the work as the commands' user in another process, since a large answer is left in a file of this one's."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        code = 0
        with open(sender, "wb") as out:
            try:
                buffer = io.BytesIO()
                work(buffer, _as_user(request))
                content = buffer.getvalue()
            except (Refused, OSError) as error:
                content, code = str(error).encode("utf-8", "replace"), 1
            out.write(content)
        os._exit(code)
    os.close(sender)
    with open(receiver, "rb") as come:
        data = come.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise Refused(data.decode("utf-8", "replace") or "the file operation was ended")
    return {}, data


_OPS = {
    "start": _start, "run": _run, "end": _end, "read": _read, "write": _write, "list": _list, "snapshot": _snapshot,
    "restore": _restore,
}  # fmt: skip
