"""What the fuzzer says, and what it makes of the answers."""

from __future__ import annotations

import copy
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from target import SECRET

from ludus.protocol.identifiers import METHOD_PREFIX

ENVIRONMENT_FAILED = 5001
EPISODE = re.compile(r"\be_[\w-]{8,}")
DEEP = 3_000

STRINGS = (
    "", " ", "\x00", "\ud800", "\u202e", "🦉" * 50, "x" * 5_000, "../../etc/passwd", "target", "train", "test", "echo",
    "add", "fail", "finish", "inside", "null", "NaN", "-1", "{}", "%s%n", "'; drop table episodes; --", "\r\nX-A: b",
    "\u00a0\u3000 leading", SECRET[:3],
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 5, 1.5, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**400, 1e308, -0.0, 5e-324,
    float("nan"), float("inf"), True, False,
)  # fmt: skip


class Fuzzer:
    """One run: its randomness, what it found, and what it opened."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.rng = random.Random(seed)
        self.sent: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.episodes: dict[str, None] = {}
        """In the order in which they were heard of."""
        self.sids: set[str] = set()
        self.next_step: Counter[str] = Counter()
        self.keys = 0
        self.numbers = 0

    def note(self, wire: str, what: str, asked: object, told: object) -> None:
        """Something that may not happen."""
        self.answers[f"{wire}: WRONG {what}"] += 1
        if len(self.wrong) < 50:
            self.wrong.append(f"{wire}: {what}\n  asked: {str(asked)[:600]}\n  told: {str(told)[:600]}")

    def key(self) -> str:
        """A fresh idempotency key, or now and then one that was used."""
        self.keys += self.rng.random() > 0.1
        return f"k{self.keys}"

    def next_number(self) -> int:
        """A number not given before."""
        self.numbers += 1
        return self.numbers

    # ── what to say ────────────────────────────────────────────────────────────────────────────────────────────────

    def junk(self, depth: int = 0) -> Any:
        """Any JSON value, the nastier the better."""
        kind = self.rng.randrange(8 if depth < 3 else 5)
        if kind < 2:
            return self.rng.choice(STRINGS)
        if kind < 4:
            return self.rng.choice(NUMBERS)
        if kind == 4:
            return None
        if kind < 6:
            return [self.junk(depth + 1) for _ in range(self.rng.randrange(4))]
        return {self.rng.choice(STRINGS): self.junk(depth + 1) for _ in range(self.rng.randrange(4))}

    def mutate(self, value: Any) -> Any:
        """A copy with one to three things wrong with it."""
        holder = {"": copy.deepcopy(value)}
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            self._mutate_once(holder)
        return holder[""]

    def _mutate_once(self, holder: dict[str, Any]) -> None:
        places: list[tuple[Any, Any]] = []
        stack: list[Any] = [holder]
        while stack:
            node = stack.pop()
            items = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
            for name, child in items:
                places.append((node, name))
                if isinstance(child, (dict, list)):
                    stack.append(child)
        node, name = self.rng.choice(places)
        action = self.rng.randrange(4)
        if action == 0 and node is not holder:
            del node[name]
        elif action == 1 and isinstance(node[name], dict):
            node[name][self.rng.choice(STRINGS) or "unknown"] = self.junk()
        elif action == 2:
            node[name] = [node[name]]
        else:
            node[name] = self.junk()

    def encode(self, value: Any, harm: float = 0.08) -> bytes:
        """JSON, or with the probability `harm` something near it."""
        spared = self.rng.random() > harm
        written = json.dumps(value, ensure_ascii=self.rng.random() < 0.8)
        text = written.encode("utf-8", "replace" if spared else "surrogatepass")
        if spared or not text:
            return text
        at = self.rng.randrange(len(text))
        kinds: tuple[Callable[[], bytes], ...] = (
            lambda: text[:at],
            lambda: text[:at] + bytes([self.rng.randrange(256)]) + text[at + 1 :],
            lambda: text[:at] + b"\xff\xfe" + text[at:],
            lambda: b"\xef\xbb\xbf" + text,
            lambda: b"[" * DEEP + text + b"]" * DEEP,
            lambda: text + text,
            lambda: b"",
            lambda: b"9" * 6_000,
            lambda: b'{"a":1,"a":' + text + b"}",
        )
        return self.rng.choice(kinds)()

    def arguments(self) -> tuple[str, dict[str, Any]]:
        """A tool and arguments that fit it."""
        rng = self.rng
        return rng.choice(
            (
                ("echo", {"text": rng.choice(STRINGS)}),
                ("add", {"a": rng.randrange(100), "b": 2}),
                ("place", {"point": {"x": 1, "y": 2.5, "tags": ["a"]}} if rng.random() < 0.5 else {"x": 1}),
                ("look", {"where": "here"}),
                ("refuse", {}),
                ("repeat", {"count": rng.choice((1, 10, 5_000))}),
                ("fail", {}) if rng.random() < 0.1 else ("look", {}),
                ("finish", {}) if rng.random() < 0.1 else ("add", {"a": 1}),
            )
        )

    def episode(self) -> str:
        """One that was opened, if there is any."""
        return self.rng.choice(list(self.episodes)[-15:]) if self.episodes else "e_none"

    def extension_request(self) -> tuple[str, dict[str, Any]]:
        """A method of the extension with valid params."""
        rng, episode = self.rng, self.episode()
        tool, arguments = self.arguments()
        step: dict[str, Any] = {"episode": episode, "step": 0, "tool": tool, "arguments": arguments, "key": self.key()}
        place = {"environment": "target", "split": rng.choice(("train", "validation", "test"))}
        choices: tuple[tuple[str, dict[str, Any]], ...] = (
            ("environments/list", {}),
            ("splits/list", {"environment": "target"}),
            ("tasks/list", {**place, "limit": 3}),
            ("tasks/get", {**place, "index": rng.randrange(5)}),
            ("tasks/sample", {**place, "count": 2, "seed": 7}),
            ("episodes/start", {**place, "count": rng.choice((1, 1, 2)), "key": self.key()}),
            ("episodes/start", {**place, "index": 1, "seed": 3, "key": self.key()}),
            *[("episodes/step", step)] * 8,
            ("episodes/grade", {"episode": episode, "answer": "x", "key": self.key()}),
            ("episodes/rewards", {"episode": episode}),
            ("episodes/get", {"episode": episode}),
            ("episodes/fork", {"episode": episode, "key": self.key()}),
            ("episodes/close", {"episode": episode}),
            ("groups/score", {"group": "g_none", "candidates": {}}),
            (
                "outcomes/report",
                {**place, "outcomes": [{"task": "riddle-1", "reward": 0.5, "passed": True}], "key": self.key()},
            ),
        )
        name, params = rng.choice(choices)
        if params is step:
            self.next_step[episode] += 1
            step["step"] = self.next_step[episode]
        return METHOD_PREFIX + name, params

    # ── what was answered ──────────────────────────────────────────────────────────────────────────────────────────

    def learn(self, text: str) -> None:
        """Remember every episode the server speaks of."""
        for found in EPISODE.findall(text):
            if len(found) > 12:
                self.episodes[found] = None

    def judge_error(self, wire: str, error: Any, asked: object) -> None:
        """A JSON-RPC error object: typed, explained in words, and no fault of the server."""
        if not isinstance(error, dict) or not isinstance(error.get("code"), int) or not error.get("message"):
            self.note(wire, "an error without code and message", asked, error)
            return
        code = error["code"]
        self.answers[f"{wire}: {code}"] += 1
        data = error.get("data") or {}
        if code == -32603 or (code == ENVIRONMENT_FAILED and not data.get("incident")):
            self.note(wire, f"error {code}", asked, error)
        if "expected" in data and "episode" in data:
            self.next_step[data["episode"]] = data["expected"] - 1


def announced(text: str) -> bool:
    """Whether a failure says that environment code broke, with the id it has in the log."""
    return "incident" in text
