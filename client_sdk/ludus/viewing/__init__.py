"""Views of trajectories, evaluations and runs, as terminal text and as self-contained HTML pages.

Everything shown comes from policies and environments and is untrusted: HTML is escaped, control characters are
replaced, and a page forbids itself scripts and requests. Needs the base install only.
"""

from __future__ import annotations

from ludus.viewing.evaluation import write_evaluation_page
from ludus.viewing.html import write_page
from ludus.viewing.reading import BrokenLine, Selection, ViewedEpisode, read_lines
from ludus.viewing.terminal import print_episode, print_list

__all__ = [
    "BrokenLine",
    "Selection",
    "ViewedEpisode",
    "print_episode",
    "print_list",
    "read_lines",
    "write_evaluation_page",
    "write_page",
]
