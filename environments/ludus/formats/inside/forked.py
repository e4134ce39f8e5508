"""Runs a function in a forked child, so that the threads and files it leaves behind stay out of this process."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from .adapter import MissingPackage, NotUsable
from .runner import die_with_parent


def call(function: Callable[[], Any]) -> Any:
    """Return the JSON value that a function returns, called in a forked child of this process.

    Inside the server's own process, which has threads, the function is called directly.

    Raises:
        NotUsable: the function raised it.
        MissingPackage: the function raised it.
        RuntimeError: it raised something else, or its process ended.
    """
    if __package__ != "ludus_inside":
        return function()
    reader, writer = os.pipe()
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            die_with_parent(parent)
            with os.fdopen(writer, "wb") as out:
                out.write(json.dumps(_report(function)).encode())
        finally:
            sys.stderr.flush()
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        content = stream.read()
    os.waitpid(child, 0)
    if not content:
        raise RuntimeError("the process that loads it ended without a report")
    report = json.loads(content)
    if "value" in report:
        return report["value"]
    if report["kind"] == "MissingPackage":
        raise MissingPackage(report["package"], report["message"])
    raise (NotUsable if report["kind"] == "NotUsable" else RuntimeError)(report["message"])


def _report(function: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"value": function()}
    except MissingPackage as error:
        return {"kind": "MissingPackage", "package": error.package, "message": str(error)}
    except NotUsable as error:
        return {"kind": "NotUsable", "message": str(error)}
    except BaseException as error:  # `SystemExit` of hosted code, too
        traceback.print_exc()
        return {"kind": "raised", "message": f"{type(error).__name__}: {error}"}
