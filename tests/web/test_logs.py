from __future__ import annotations

import gc
import io
import json
import logging
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from waiting import block_until

from ludus.server.auth import CapabilitySigner
from ludus.server.auth.tokens import new_token
from ludus.server.web import logs

TOKEN = new_token("a", ("admin",))[0]
CAPABILITY = CapabilitySigner.random().sign("e_1", ["a"])[0]


@pytest.fixture(params=["console", "json"])
def stream(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """Where this process's log goes while a test runs."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    written = io.StringIO()
    logs.configure(request.param, "INFO", written)
    yield written
    logs.flush()
    root.handlers[:] = before
    root.setLevel(level)


@pytest.mark.parametrize(
    "text",
    [
        TOKEN,
        f"Authorization: Bearer {TOKEN}",
        f"/play/{CAPABILITY}/mcp",
        CAPABILITY,
        "{'authorization': 'Bearer opaque-credential'}",
        '{"X-API-Key": "opaque-credential"}',
        "[(b'x-api-key', b'opaque-credential')]",
        "X-Secrets: opaque-credential",
    ],
    ids=["token", "bearer", "path", "capability", "mapping", "json", "pairs", "header"],
)
def test_credentials_are_hidden_wherever_they_stand(text: str) -> None:
    hidden = logs.redact(f"before {text} after")
    for credential in (TOKEN, TOKEN[6:], CAPABILITY, CAPABILITY[5:], "opaque-credential"):
        assert credential not in hidden
    assert hidden.startswith("before ")
    assert hidden.endswith(" after")
    assert "***" in hidden


def test_what_is_no_credential_is_let_be() -> None:
    text = "ludus_steps_total in /play/{capability}/mcp by display_name play_ground"
    assert logs.redact(text) == text


def test_secrets_are_hidden_in_every_spelling_and_short_ones_let_be() -> None:
    registry = logs.SecretRegistry(size=2)
    registry.add(['qu"oted\nvalue', "abc"])
    assert registry.redact(f"{'qu' + chr(34) + 'oted' + chr(10) + 'value'} abc") == "*** abc"
    assert registry.redact(json.dumps('qu"oted\nvalue')) == '"***"'
    assert registry.redact(repr('qu"oted\nvalue')) == "'***'"
    registry.add(["second-secret", "third-secret"])
    assert registry.redact("second-secret third-secret") == "*** ***"


def test_arguments_extras_and_tracebacks_are_redacted_in_any_logger(stream: io.StringIO) -> None:
    logger = logging.getLogger("somebody.elses")
    try:
        raise ValueError(f"bad {TOKEN}")
    except ValueError:
        logger.exception("failed for %s", CAPABILITY, extra={"where": f"/play/{CAPABILITY}/mcp"})
    logs.flush()
    written = stream.getvalue()
    assert TOKEN not in written
    assert CAPABILITY not in written
    assert "ValueError: bad ludus_***" in written
    assert "somebody.elses" in written


def test_a_written_traceback_is_let_go_with_what_its_frames_hold(stream: io.StringIO) -> None:
    held = fail_holding(_Held())

    def is_gone() -> bool:
        gc.collect()
        return held() is None

    block_until(is_gone)
    assert "ValueError: holding" in stream.getvalue()


class _Held:
    pass


def fail_holding(held: _Held) -> weakref.ref[_Held]:
    try:
        raise ValueError("holding")
    except ValueError:
        logging.getLogger("holder").exception("failed")
    return weakref.ref(held)


def test_a_wrong_log_call_is_written_and_breaks_nothing(stream: io.StringIO) -> None:
    logging.getLogger("x").warning("%d things", "many")
    logs.flush()
    assert "%d things" in stream.getvalue()
    assert "unformattable" in stream.getvalue()


def test_a_json_line_stays_json_whatever_was_hidden_in_it() -> None:
    formatter = logs.JsonFormatter()
    extra = {"headers": {"nested": [f'{{"X-API-Key": "{TOKEN}"}}', TOKEN]}, "number": 1, "nothing": None}
    record = logging.makeLogRecord({"msg": '{"Authorization": "Bearer a\\\\b"}', "args": None, **extra})
    line = json.loads(formatter.format(record))
    assert TOKEN not in json.dumps(line)
    assert line["message"] == '{"Authorization": "Bearer ***"}'
    assert (line["number"], line["nothing"], line["headers"]["nested"][1]) == (1, None, "ludus_***")


def test_a_line_costs_no_work_for_secrets_that_are_longer_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1,024 secrets of 64 KB, each line took 0.3 s of CPU time."""

    class Line(str):
        searched = 0

        def replace(self, *arguments: Any) -> Line:
            Line.searched += 1
            return Line(super().replace(*arguments))

    registry = logs.SecretRegistry()
    registry.add([*(f"{number}" + "x" * 10_000 for number in range(100)), 'pass"word', "password, and more"])
    monkeypatch.setattr(
        "ludus.server.web.logs.json.dumps", lambda value: pytest.fail("secrets are spelled once, when they are added")
    )
    assert registry.redact(Line('pass"word or pass\\"word or password, and more')) == "*** or *** or ***"
    assert Line.searched == 3


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r\x00\x7f\u2028\ud800\U000e0041"
FORGED = "12:00:00 INFO    ludus.server: all is well"


def test_control_characters_of_foreign_text_are_escapes_in_messages_extras_and_tracebacks(
    stream: io.StringIO, request: pytest.FixtureRequest
) -> None:
    try:
        raise ValueError(f"{HOSTILE}\n{FORGED}")
    except ValueError:
        logging.getLogger("somebody.elses").exception(
            "failed: %s\n%s", HOSTILE, FORGED, extra={"where": HOSTILE + FORGED}
        )
    logs.flush()
    written = stream.getvalue()
    assert all(character.isprintable() or character == "\n" for character in written)
    assert "\\u202eevil" in written
    assert "Traceback (most recent call last):" in written
    if "console" in request.node.name:
        assert "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m" in written
        first, *others = written.splitlines()
        assert not first.startswith(" ")
        assert others
        assert all(line.startswith("  ") for line in others), "no line of a record looks like another record"
    else:
        (line,) = written.splitlines()
        assert json.loads(line)["message"] == f"failed: {HOSTILE}\n{FORGED}".replace("\ud800", "\ufffd")
