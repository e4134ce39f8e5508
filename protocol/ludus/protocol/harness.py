"""The exit codes by which a `command` harness names why it could not play an episode to its end.

`ludus box` uses them; so may any other program that runs an agent. The last line that the program writes to standard
error is the sentence that a trainer records with the end.
"""

from __future__ import annotations

from enum import IntEnum


class HarnessExit(IntEnum):
    """The exit codes with a meaning of their own. With each, the episode is unscored."""

    NETWORK = 120
    """The agent asked for a destination other than its model and its episode."""
    LIMIT = 121
    """A limit of the agent's sandbox ended it; the sentence has the limit's name."""
    SANDBOX = 122
    """The agent's sandbox could not be started, or was lost."""
