"""Logging that redacts credentials and secrets, so that logs may be stored.

Records leave the event loop through a queue, and a separate thread formats, redacts and writes them. Redaction works on
the finished text, including the traceback, so it covers every logger, also those of libraries.
"""

from __future__ import annotations

import atexit
import json
import logging
import logging.handlers
import queue
import re
import sys
import threading
import traceback
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import IO, Any, Final, Literal

from ludus.protocol.text import escape_json, escape_record, replace_surrogates

__all__ = ["ConsoleFormatter", "LogFormat", "LogLevel", "configure", "flush"]


LogFormat = Literal["console", "json"]
"""The format of log lines: for people, or one JSON object each."""
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]

_CREDENTIALS: Final = re.compile(
    r"(?P<path>/play/)[^/\s\"'?#{][^/\s\"'?#]*"
    r"|(?P<kind>ludus_|play_)(?:[a-z0-9]{1,16}\.)?[A-Za-z0-9_-]{32,}"
    r"|(?P<header>(?:authorization|x-api-key|x-secrets)\\?[\"']?\s*[:=,]\s*b?\\?[\"']?(?:bearer\s+)?)[^\s\"',})]+",
    re.IGNORECASE,
)
_HIDDEN: Final = "***"
_LEAST_SECRET: Final = 6
_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "color_message",
    "taskName",
}


class SecretRegistry:
    """Values that must not appear in logs: the secrets that episodes are started with.

    The latest `size` values are kept after their episodes have ended, because later log lines may still hold them.
    """

    def __init__(self, size: int = 1024) -> None:
        self._size = size
        self._spellings: dict[str, frozenset[str]] = {}
        """By value, how plain text, JSON and `repr` write it."""
        self._shortest_first: list[str] | None = None
        """All spellings; None after a change."""
        self._lock = threading.Lock()

    def add(self, values: Iterable[str]) -> None:
        """Hide `values` from now on, except those shorter than six characters, which would hide too much of the log."""
        with self._lock:
            for value in values:
                if len(value) >= _LEAST_SECRET:
                    spellings = self._spellings.pop(value, None)
                    self._spellings[value] = spellings or frozenset({value, json.dumps(value)[1:-1], repr(value)[1:-1]})
                    self._shortest_first = None
            while len(self._spellings) > self._size:
                del self._spellings[next(iter(self._spellings))]

    def redact(self, text: str) -> str:
        """Return `text` with every value masked, in its plain form and as JSON or `repr` write it."""
        if not self._spellings:
            return text
        with self._lock:
            if self._shortest_first is None:
                self._shortest_first = sorted(
                    {text for spelling in self._spellings.values() for text in spelling}, key=len
                )
            spellings = self._shortest_first
        # Long ones first, because one may contain another; those that are longer than the text are skipped.
        for index in range(bisect_right(spellings, len(text), key=len) - 1, -1, -1):
            text = text.replace(spellings[index], _HIDDEN)
        return text


episode_secrets: Final = SecretRegistry()
"""The registry that all handlers set up by `configure` use."""


def redact(text: str) -> str:
    """Return `text` without tokens, capabilities, credentials in headers, episodes' secrets, or lone surrogates."""
    text = _CREDENTIALS.sub(lambda match: (match["path"] or match["kind"] or match["header"]) + _HIDDEN, text)
    return replace_surrogates(episode_secrets.redact(text))


class ConsoleFormatter(logging.Formatter):
    """A formatter of lines for people: one line for each record, then the rest of its message and traceback, indented.

    Args:
        form: the form of the line.
    """

    def __init__(self, form: str = "%(asctime)s %(levelname)-7s %(name)s: %(message)s") -> None:
        super().__init__(form, "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line and the traceback, redacted, with control characters as escapes."""
        extra = "".join(f" {name}={value}" for name, value in _extra(record).items())
        line = super().format(record)
        head, newline, following = line.partition("\n")
        return escape_record(redact(head + extra + newline + following))


class JsonFormatter(logging.Formatter):
    """A formatter of JSON lines with `time`, `level`, `logger`, `message`, extra fields and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON object. Each text in it is redacted before serialization, so that the JSON stays valid.

        Also the control characters that JSON allows are escapes: people read such lines in terminals.
        """
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = "".join(traceback.format_exception(*record.exc_info))
        return escape_json(json.dumps(_cleaned(line), ensure_ascii=False))


def _cleaned(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {redact(str(name)): _cleaned(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_cleaned(item) for item in value]
    return redact(str(value))


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


class _Handoff(logging.handlers.QueueHandler):
    """A queue handler that merges the arguments, which may change later, into the message.

    The listener's thread does the rest of the formatting.
    """

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        try:
            record.msg = record.getMessage()
        except Exception as error:  # A log call with wrong arguments must not raise in its caller.
            record.msg = f"{record.msg} (unformattable: {error})"
        record.args = None
        return record


class _Listener(logging.handlers.QueueListener):
    """A queue listener that drops a traceback once it is written.

    Its thread holds the last record until the next one comes, and would keep the traceback's frames alive.
    """

    def handle(self, record: logging.LogRecord) -> None:
        super().handle(record)
        record.exc_info = None


_lock = threading.Lock()
_active: tuple[_Handoff, _Listener] | None = None


def configure(style: LogFormat = "console", level: str = "INFO", stream: IO[str] | None = None) -> None:
    """Send every log record of this process through the redacting queue. A second call replaces the first.

    Args:
        style: `console` for people, or `json` for JSON lines.
        level: the lowest level that is written. For `uvicorn` and some other libraries it is at least WARNING.
        stream: where lines are written; standard error by default, because `--stdio` uses standard output.
    """
    global _active
    flush()
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else ConsoleFormatter())
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handoff = _Handoff(records)
    listener = _Listener(records, handler)
    with _lock:
        root = logging.getLogger()
        for old in list(root.handlers):
            if isinstance(old, _Handoff):
                root.removeHandler(old)
        root.addHandler(handoff)
        root.setLevel(level)
        for name in ("uvicorn", "uvicorn.error", "mcp", "httpx", "asyncio"):
            logging.getLogger(name).setLevel(max(logging.getLevelName(level), logging.WARNING))
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        listener.start()
        _active = handoff, listener


def _is_news(record: logging.LogRecord) -> bool:
    # uvicorn's websockets-sansio logs this error for a refused upgrade too, although it was answered in full.
    if record.msg == "Cancel %s running task(s), timeout graceful shutdown exceeded":
        record.msg = "%s requests were still open when the server stopped; they get an error"
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return record.msg != "ASGI callable returned without completing handshake."


def flush() -> None:
    """Write the queued records, and stop. It is called at exit and before a new configuration."""
    global _active
    with _lock:
        if _active is None:
            return
        handoff, listener = _active
        _active = None
        logging.getLogger().removeHandler(handoff)
        listener.stop()


atexit.register(flush)
