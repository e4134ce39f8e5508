"""The texts by which an agent learns that its episode has ended. The agent endpoint has no other sign of it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ludus.protocol.lifecycle import EndReason

NOT_CALLED: Final = "No tool was called."
"""The end of a notice that answers a call which ran nothing."""

FAILED: Final = "The environment failed, so this episode is over."
"""The notice about an episode that its environment has failed; the name of an incident may follow."""

_INCIDENT: Final = re.compile(r"Incident (\S+) is in the server's log\.")
_END: Final = re.compile(rf"This episode is over(?: \((\w+)\))?\.( {re.escape(NOT_CALLED)})?")


class EndNotice(NamedTuple):
    """What a notice says."""

    reason: EndReason | None
    """Why the episode ended; None if the notice does not say."""
    called: bool
    """Whether the call that it answers was made."""
    incident: str | None = None
    """The id under which the server logged why the episode failed."""


def end_notice(reason: EndReason | str | None, *, called: bool = True) -> str:
    """Return the notice that an episode has ended."""
    return f"This episode is over{f' ({reason})' if reason else ''}.{'' if called else f' {NOT_CALLED}'}"


def failure_notice(incident: str | None) -> str:
    """Return the notice that the environment has failed an episode."""
    return FAILED + (f" Incident {incident} is in the server's log." if incident else "")


def read_end_notice(text: str) -> EndNotice | None:
    """Return what a text says as a notice; None if it is no notice.

    The notice about an episode that the server does not hold has no reason.
    """
    if text.startswith(FAILED):
        found = _INCIDENT.search(text)
        return EndNotice(EndReason.ENVIRONMENT_ERROR, True, found.group(1) if found else None)
    end = _END.fullmatch(text)
    if end is None:
        return EndNotice(None, False) if text.endswith(f". {NOT_CALLED}") else None
    reason = EndReason(end.group(1)) if end.group(1) in set(EndReason) else None
    return EndNotice(reason, end.group(2) is None)
