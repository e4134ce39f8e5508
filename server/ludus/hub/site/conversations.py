"""Recorded conversations for pages: turns with their calls, answers and rewards, in pages of bounded size."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from markupsafe import Markup

from ludus.protocol.errors import NotFound
from ludus.protocol.trajectory import Trajectory
from ludus.viewing import page
from ludus.viewing.conversation import Entry, Image, components, entries

PAGE_BYTES: Final = 20_000
"""The most bytes of turns on one page, except for one turn that is larger."""

TEXT_BYTES: Final = 8_000
"""The most bytes of one text on a page."""

LARGEST_IMAGE: Final = 8 * 1024 * 1024
"""The most characters of the address of an image."""

_DATA: Final = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True)
class ShownEntry:
    """A message, a call or an answer.

    Attributes:
        who: who wrote it.
        style: a class of the style sheet.
        texts: safe HTML.
        images: the numbers of its images in the conversation.
        chips: safe HTML about the step: its reward, its error.
        rows: the components of the step's reward.
        step: the number of the step, for an answer.
    """

    who: str
    style: str
    texts: tuple[Markup, ...]
    images: tuple[int, ...]
    chips: Markup = Markup("")
    rows: tuple[tuple[str, str, str, str], ...] = ()
    step: int | None = None

    @property
    def size(self) -> int:
        """Its bytes as HTML, about."""
        rows = sum(len(cell) for row in self.rows for cell in row)
        return (
            220 + sum(len(text.encode()) for text in self.texts) + 120 * len(self.images) + len(self.chips) + 2 * rows
        )


@dataclass(slots=True)
class ShownTurn:
    """One turn; the number is 0 for what comes before the first one."""

    number: int
    entries: list[ShownEntry] = field(default_factory=list)
    hidden: int = 0
    """Entries that were left out because the turn is too large."""
    size: int = 60


def turns(trajectory: Trajectory) -> list[ShownTurn]:
    """Return the turns of a conversation."""
    found, images = [ShownTurn(0)], 0
    for entry in entries(trajectory):
        if entry.kind == "turn":
            found.append(ShownTurn(int(entry.who)))
            continue
        here = sum(isinstance(part, Image) for part in entry.parts)
        shown = _shown(entry, images)
        images += here
        turn = found[-1]
        if turn.size + shown.size > PAGE_BYTES and turn.entries:
            turn.hidden += 1
            continue
        turn.entries.append(shown)
        turn.size += shown.size
    return [turn for turn in found if turn.entries]


def pages(shown: list[ShownTurn], most: int = PAGE_BYTES) -> list[list[ShownTurn]]:
    """Return turns as pages of at most `most` bytes; a larger turn has a page of its own."""
    found: list[list[ShownTurn]] = [[]]
    size = 0
    for turn in shown:
        if found[-1] and size + turn.size > most:
            found.append([])
            size = 0
        found[-1].append(turn)
        size += turn.size
    return found


def find_page(all_pages: list[list[ShownTurn]], turn: int) -> int:
    """Return the number of the page, from 1, that has a turn; the first one if there is no such turn."""
    return next((index for index, all_page in enumerate(all_pages, 1) if any(t.number == turn for t in all_page)), 1)


def image(trajectory: Trajectory, number: int) -> tuple[bytes, str]:
    """Return an image of a conversation, by its number from 0, with its media type.

    Raises:
        NotFound: there is none, or it is not part of the file.
    """
    for index, address in enumerate(_images(trajectory)):
        if index == number:
            match = _DATA.fullmatch(address) if len(address) <= LARGEST_IMAGE else None
            try:
                if match is not None:
                    return base64.b64decode(match[2], validate=True), match[1]
            except binascii.Error:
                break
            break
    raise NotFound("the conversation has no such image")


def _images(trajectory: Trajectory) -> Iterator[str]:
    return (part for entry in entries(trajectory) for part in entry.parts if isinstance(part, Image))


def _shown(entry: Entry, first_image: int) -> ShownEntry:
    texts = [str(part) for part in entry.shown if not isinstance(part, Image)]
    count = sum(isinstance(part, Image) for part in entry.parts)
    step = entry.step
    return ShownEntry(
        entry.title[:90], entry.style, tuple(text_html(text) for text in texts),
        tuple(range(first_image, first_image + count)),
        Markup(page.step_chips(step)),  # which escapes what it gets
        tuple(components(step.reward)[:20]) if step is not None else (), step.step if step is not None else None,
    )  # fmt: skip


def text_html(text: str) -> Markup:
    """Return text as safe HTML of at most about `TEXT_BYTES`."""
    left = text
    while True:
        html = page.text_block(left)
        if len(html.encode()) <= TEXT_BYTES:
            break
        left = left[: len(left) * 2 // 3]
    hidden = len(text) - len(left)
    note = Markup('<p class="soft small">… {} characters more</p>').format(f"{hidden:,}") if hidden else Markup("")
    return Markup(html) + note
