"""Whether demonstrations can be imitated: a policy can repeat only calls whose values follow from what it has read.

How this works. A call's arguments are taken apart into numbers and words. A value is *unread* if none of the episode's
texts before the call has it: no message, no tool, no earlier output. A value that a tenth of the episodes or more use,
such as a move of a game, can be learned by heart, so it does not count. Whether an unread value follows from the text,
as a sum does, cannot be seen from outside; but it does not if two episodes read the same and call with different
values, and it is unlikely if the demonstrations leave out tools that would have shown it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ludus.checks.disclosure import Key, contains, disclosed, leaves
from ludus.protocol.trajectory import Trajectory

LEARNED_BY_HEART: Final = 0.1
"""A value that this share of the episodes use in the same argument can be learned by heart."""

REPORTED: Final = 0.1
"""The share of episodes with unread values from which on there is something to say."""

PrivateValues = Callable[[str, Key], Iterable[tuple[str, str]]]
"""Return the private values of a task of an environment, each with its field."""


@dataclass(frozen=True, slots=True)
class UnreadValue:
    """A value in a call that nothing before the call shows."""

    tool: str
    argument: str
    value: str
    read: str
    """A digest of all that the policy had read before the call."""

    @property
    def place(self) -> tuple[str, str]:
        """The tool and the argument."""
        return self.tool, self.argument


def unread_values(episode: Trajectory) -> Iterator[UnreadValue]:
    """Yield the values in an episode's calls that nothing before them shows, each once."""
    text = json.dumps(list(episode.tools), ensure_ascii=False)
    names: set[str] = set()
    for item in episode.items:
        if item.get("type") != "function_call":
            text += "\n" + _shown(item)
            continue
        read = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        tool = str(item.get("name"))
        for path, value in _arguments(item):
            for part in _parts(value):
                if part not in names and not contains(part, text):
                    names.add(part)
                    yield UnreadValue(tool, path, part, read)


def _shown(item: Mapping[str, Any]) -> str:
    """Return what an item shows to the policy; nothing for what the policy says itself."""
    if item.get("type") == "function_call_output":
        return _text(item.get("output"))
    return _text(item.get("content")) if item.get("role") in ("system", "developer", "user") else ""


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(_text(part) for part in content)
    return str(content.get("text", "")) if isinstance(content, dict) else str(content or "")


def _arguments(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        arguments = json.loads(item.get("arguments") or "{}")
    except (TypeError, ValueError):
        return
    if isinstance(arguments, dict):
        for name, value in arguments.items():
            yield from leaves(name, value)


def _parts(value: str) -> list[str]:
    """Return the value, if it is a word or number; of longer texts, which a policy writes itself, the numbers."""
    if re.fullmatch(r"\S+", value):
        return [value.removesuffix(".0")]
    return re.findall(r"(?<![\w.])[\w-]*\d[\w-]*(?![\w.]*\w)", value)


@dataclass(slots=True)
class _Episode:
    key: Key
    environment: str
    unread: tuple[UnreadValue, ...]


@dataclass(slots=True)
class Demonstrations:
    """What is remembered of demonstrations to find out whether they can be imitated."""

    episodes: list[_Episode] = field(default_factory=list)
    offered: set[str] = field(default_factory=set)
    """The names of all tools."""
    called: set[str] = field(default_factory=set)

    def add(self, episode: Trajectory) -> None:
        """Add one demonstration."""
        key = (episode.split, episode.task.id)
        known = () if episode.policy == "demonstrator" else tuple(unread_values(episode))  # it knows what it has read
        self.episodes.append(_Episode(key, episode.environment, known))
        self.offered.update(str(tool.get("name")) for tool in episode.tools)
        self.called.update(str(item.get("name")) for item in episode.items if item.get("type") == "function_call")

    def remark(self, private: PrivateValues | None = None) -> str | None:
        """Return a message about calls that cannot be imitated, with counts; None if there are hardly any.

        Args:
            private: the private values of a task, where the environment's class is known.
        """
        uses = Counter((*one.place, one.value) for episode in self.episodes for one in episode.unread)
        most = max(1.0, LEARNED_BY_HEART * len(self.episodes))
        specific = ((one, [v for v in one.unread if uses[(*v.place, v.value)] <= most]) for one in self.episodes)
        unread = [(episode, values) for episode, values in specific if values]
        if len(unread) < max(1, REPORTED * len(self.episodes)):
            return None
        first, (value, *_) = unread[0]
        lines = [
            f"{len(unread)} of {len(self.episodes)} demonstrations call with values that nothing had shown before, "
            f"such as {value.tool}({value.argument}={value.value}) in {'/'.join(first.key)}"
        ]
        for name, count in _private_fields(unread, private).most_common():
            lines.append(f"in {count} of them they are values of the private field `{name}`")
        if skipped := sorted(self.offered - self.called):
            lines.append(f"no demonstration calls {', '.join(skipped[:5])}{', …' if skipped[5:] else ''}")
        ambiguous = _ambiguous(unread)
        if ambiguous:
            lines.append(f"{ambiguous} of them read exactly as one of another task does that calls with other values")
        verdict = (
            "A model cannot learn these calls from what it reads:"
            if 2 * ambiguous >= len(unread)
            else "A model learns these calls only if the values follow from what it reads. If they do not,"
        )
        return (
            f"{'; '.join(lines)}. {verdict} define `demonstrator(cls, prompt)` next to `oracle`, which looks first, "
            "and record others; `ludus demos` prefers it"
        )


def _ambiguous(unread: Iterable[tuple[_Episode, list[UnreadValue]]]) -> int:
    """Return the number of episodes that read the same as one of another task, with other values in the same place."""
    values: dict[tuple[str, str, str], dict[str, set[Key]]] = defaultdict(lambda: defaultdict(set))
    for episode, found in unread:
        for one in found:
            values[(*one.place, one.read)][one.value].add(episode.key)
    return sum(
        any(
            keys - {episode.key}
            for one in found
            for value, keys in values[(*one.place, one.read)].items()
            if value != one.value
        )
        for episode, found in unread
    )


def _private_fields(unread: list[tuple[_Episode, list[UnreadValue]]], private: PrivateValues | None) -> Counter[str]:
    """Return the number of tasks whose unread values are those of a private field, by the field's name."""
    if private is None:
        return Counter()
    texts: dict[Key, str] = defaultdict(str)
    fields: dict[str, dict[Key, str]] = defaultdict(dict)
    for episode, found in unread:
        texts[episode.key] += " ".join(one.value for one in found) + " "
        for path, value in private(episode.environment, episode.key):
            fields[path][episode.key] = value
    tasks: dict[str, set[Key]] = defaultdict(set)
    for path, values in fields.items():
        tasks[re.split(r"[.\[]", path)[0]].update(disclosed(values, texts))
    return Counter({name: len(keys) for name, keys in tasks.items() if keys})
