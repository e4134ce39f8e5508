"""What the commands write of foreign text moves no cursor and forges no line of a terminal."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from ludus.cli.common import print_json

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202eevil\r\x7f"


def test_json_on_standard_output_has_control_characters_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": HOSTILE + "é漢\n"})
    written = capsys.readouterr().out
    assert written.rstrip("\n").isprintable()
    assert "é漢" in written
    assert json.loads(written) == {"text": HOSTILE + "é漢\n"}


def test_records_of_commands_without_a_log_have_control_characters_as_escapes() -> None:
    program = (
        "import logging, sys; from ludus.cli import app; sys.argv = ['ludus', '--version']\n"
        "try: app.main()\nexcept SystemExit: pass\n"
        f"logging.getLogger('ludus').warning('failed: %s', {HOSTILE!r} + '\\nforged')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stderr == "failed: \\x1b]0;owned\\x07\\x9b2J\\u202eevil\\r\\x7f\n  forged\n"


def test_records_of_sandboxd_and_of_the_broker_are_formatted_so(capsys: pytest.CaptureFixture[str]) -> None:
    from ludus.sandbox.remote.command import _RecordFormatter
    from ludus.server.web.logs import ConsoleFormatter

    record = logging.makeLogRecord({"msg": HOSTILE + "\nforged", "levelno": logging.WARNING, "levelname": "WARNING"})
    for formatter in (_RecordFormatter("[sandboxes] %(message)s"), ConsoleFormatter("[sandboxes] %(message)s")):
        assert formatter.format(record) == "[sandboxes] \\x1b]0;owned\\x07\\x9b2J\\u202eevil\\r\\x7f\n  forged"
