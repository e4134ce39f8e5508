"""Checks that the policy sees no private fields and no rewards.

A private value counts as leaked if it appears in the texts that the policy reads before the episode has ended and
before the policy has said the value itself. A long value counts by itself. A short one, such as a 7, appears in many
texts by chance; it counts if the tasks' own values appear in their texts far more often than the values of other tasks
do (Fisher's exact test). A list of choices contains the right one, which is not a leak.

In some tasks, such as a search, calls are meant to reveal a value. So a value that only observations show is a
warning, and it is accepted if the class lists its field in `discoverable_fields`.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ludus.checks.disclosure import SIGNIFICANCE, Key, contains, disclosed, is_long, leaves, private_leaves
from ludus.client.policies.base import Conversation, Policy, PolicyResult
from ludus.protocol.actions import Answer, Call
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.trajectory import Trajectory
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.core.policies import empty_arguments
from ludus.validation.core.target import ValidationTarget, evidence
from ludus.validation.core.transcripts import prompt_of, script_of
from ludus.validation.shortcuts.extraction import without_label
from ludus.validation.shortcuts.submission import final_text

suite = Suite()

_OBSERVATION: Final = "an observation"

_PLACES: Final = ("the prompt", "the tools", _OBSERVATION, "an error", "the public fields")

_REWARD: Final = re.compile(r"\b(?:reward|score)\b\s*(?:is|was|of|[:=])\s*[-+]?\d", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts that a policy reads of one task, by place."""

    prompt: str
    tools: str
    observations: str
    errors: str
    fields: str

    def places(self) -> Iterator[tuple[str, str]]:
        yield "the prompt", self.prompt
        yield "the tools", self.tools
        yield _OBSERVATION, self.observations
        yield "an error", self.errors
        yield "the public fields", self.fields


async def error_policy(conversation: Conversation) -> PolicyResult:
    """Make every kind of mistake: an unknown tool, no arguments, wrong types, extra names."""
    names = [tool.name for tool in conversation.tools]
    number, kind = divmod(conversation.turn - 1, 3)
    if number >= len(names):
        return Call("no_such_tool", {})
    wrong: tuple[dict[str, Any], ...] = ({}, {"no_such_argument": 1}, {})
    arguments = wrong[kind]
    if kind == 2:
        properties = conversation.tools[number].input_schema.get("properties", {})
        arguments = {name: {"wrong": ["type"]} for name in properties}
    return Call(names[number], arguments)


RARE_CALLS: Final = 90
"""The most calls with rare arguments of one task."""

RARE_TASKS: Final = 8

PLAUSIBLE: Final = 4
"""The values of an argument that are taken from what solves other tasks."""

VOCABULARY: Final = 3
"""A private value of more tasks than this is a word of the environment's world, and no secret by itself."""

CHOICES: Final = 3
"""A private list of this many values may be what the task asks to choose from, or to put in order."""

TABLE: Final = 20
"""From this number of values, a private field is a world that the task is about, of which a prompt names a part."""

ENCODED: Final = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
"""Matches what may be base64 or hexadecimal."""

RARE_EPISODES: Final = 4
"""The most episodes of one task in which they are made, if an episode has few calls."""

RARE_TEXTS: Final = ("", "?", "help", "debug", "all", "*", "..", "0", "-1", "answer", "secret", "x" * 300)
RARE_NUMBERS: Final = (-1, 10**6, 0, 1000, 99, 2, 13, 10**12, 42, 7)


def rare_arguments(tools: Sequence[ToolSpec], oracle: Sequence[Trajectory]) -> list[Call]:
    """Return calls in which one argument has a rare value, and the others those that the oracle uses.

    All arguments come in turn, so that an episode with few calls tries each.
    """
    calls_made = [call for play in oracle for call in script_of(play).actions if isinstance(call, Call)]
    usual = {call.tool: call.arguments for call in calls_made}
    judged = _judged_tools(oracle)
    lasts = [action for play in oracle for action in script_of(play).actions[-1:]]
    ends = {action.tool for action in lasts if isinstance(action, Call)}
    series: list[list[Call]] = []
    of_ends: list[list[Call]] = []
    for tool in tools:
        arguments = {**empty_arguments(tool.input_schema), **usual.get(tool.name, {})}
        for name, schema in tool.input_schema.get("properties", {}).items():
            # What solves another task is wrong here, and plausible: replies about such values show most. Tools that
            # only look something up would show what they are for.
            plausible = [
                call.arguments[name] for call in calls_made if call.tool == tool.name and name in call.arguments
            ]
            plausible = plausible if tool.name in judged else []
            values = [*plausible[:1], *_rare_values(schema)[:2], *plausible[1:PLAUSIBLE], *_rare_values(schema)[2:]]
            calls = [Call(tool.name, {**arguments, name: value}) for value in values]
            (of_ends if tool.name in ends else series).append(calls)
    # A call that ends the episode would keep the others from being tried.
    in_turn = [
        call
        for part in (series, of_ends)
        for calls in itertools.zip_longest(*part)
        for call in calls
        if call is not None
    ]
    return in_turn[:RARE_CALLS]


def _judged_tools(plays: Sequence[Trajectory]) -> set[str]:
    """Return the names of the tools with a call that earned a reward or was the last of its episode."""
    judged: set[str] = set()
    for play in plays:
        calls = {item["call_id"]: str(item["name"]) for item in play.items if item.get("type") == "function_call"}
        rewarded = [calls[step.call_id] for step in play.steps
                    if step.call_id in calls and step.reward is not None and step.reward.value]  # fmt: skip
        judged.update(rewarded, list(calls.values())[-1:])
    return judged


def _rare_values(schema: Any) -> Sequence[Any]:
    if not isinstance(schema, dict):
        return ()
    if "enum" in schema:
        return tuple(schema["enum"])
    alternatives = [schema, *schema.get("anyOf", ())]
    values: list[Any] = []
    for kind in alternatives:
        match kind.get("type") if isinstance(kind, dict) else None:
            case "string":
                values += RARE_TEXTS
            case "integer" | "number":
                values += RARE_NUMBERS
            case "boolean":
                values += (True, False)
            case _:
                pass
    return values


def encodings(value: str) -> Mapping[str, str]:
    """Return other ways to write a private value, by name; only those of three characters or more."""
    data = value.encode()
    ways = {
        "reversed": value[::-1],
        "in hexadecimal": data.hex(),
        "in base64": base64.b64encode(data).decode().rstrip("="),
        "in ROT13": codecs.encode(value, "rot13"),
        "with commas": ",".join(value),
        "with spaces": " ".join(value),
        "with hyphens": "-".join(value),
    }
    if re.fullmatch(r"\d{2,15}", value):
        number = int(value)
        ways |= {
            "in base 36": _in_base(number, 36), "in base 16": f"{number:x}", "in base 2": f"{number:b}",
            "in base 8": f"{number:o}", "doubled": str(2 * number), "one more": str(number + 1),
            "with commas, in base 36": ",".join(_in_base(number, 36)),
        }  # fmt: skip
    return {name: text for name, text in ways.items() if len(text) > 2 and text != value}


def _in_base(number: int, base: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, base)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


@suite.check("leakage", "No private field appears in what the policy reads", "semantic.no_solution_leakage",
             "runtime.oracle_containment")  # fmt: skip
async def leakage(target: ValidationTarget) -> AsyncIterator[Problem]:
    long_secrets = {name: value for name, value in target.settings.secrets.items() if is_long(value)}
    if target.local is None and not long_secrets:
        raise NotApplicable(target.no_class_reason)
    plays = await _gather(target)
    texts = {key: _read(play) for key, play in plays.items()}
    if evidence_here := _secrets_shown(long_secrets, plays):
        yield error("secrets of the episode are shown to the policy: keep them out of what it reads", evidence_here)
    if target.local is None:
        return
    lowered = {
        source: {key: dict(seen_texts.places())[source].lower() for key, seen_texts in texts.items()}
        for source in _PLACES
    }
    private: dict[str, dict[Key, str]] = {}
    field_of: dict[str, str] = {}
    holders: defaultdict[tuple[str, str], set[Key]] = defaultdict(set)
    sizes: Counter[tuple[str, Key]] = Counter()
    lists: defaultdict[tuple[str, Key], list[str]] = defaultdict(list)
    for row in target.tasks:
        for field, path, value in private_leaves(target.task(row)):
            private.setdefault(path, {})[row.split, row.id] = value
            field_of[path] = field
            holders[field, value].add((row.split, row.id))
            sizes[field, (row.split, row.id)] += 1
            lists[field, (row.split, row.id)].append(value)
    tables = {field for (field, _), size in sizes.items() if size >= TABLE}
    if described := await _answers_described(target, plays):
        yield error("descriptions of tools hold the answer of the task: write them without looking at it", described)
    if not private and not long_secrets and not described:
        raise NotApplicable("the tasks have no private fields")
    sought = frozenset(target.local.cls.discoverable_fields)
    names = {name for path in private for name in _names(path)}
    if sought - names:
        yield error(f"`discoverable_fields` names fields that are not private: {', '.join(sorted(sought - names))}")
    findings: list[Evidence] = []
    observed: list[Evidence] = []
    to_declare = set(sought)
    for path, values in private.items():
        for source in _PLACES:
            texts_here = {key: dict(seen_texts.places())[source] for key, seen_texts in texts.items()}
            leaked = leaks(path, values, texts_here, source, significance=SIGNIFICANCE / len(private))
            leaked = leaked or _encoded_leaks(
                path, values, texts_here, lowered[source], source, SIGNIFICANCE / len(private)
            )
            field = field_of[path]
            if source in ("the prompt", "the public fields"):
                # A question about a table names something in it, and a task may offer values in another order.
                leaked = [
                    leak for leak in leaked if field not in tables
                    and not _are_choices(lists[field, _key(leak)], texts_here[_key(leak)])
                ]  # fmt: skip
            leaked = [leak for leak in leaked if not _is_vocabulary(holders, field, values[_key(leak)])]
            evidence_here = [_with_episode(plays, leak, values[_key(leak)], source) for leak in leaked]
            if source != _OBSERVATION:
                findings += evidence_here
            elif not sought & _names(path):
                observed += evidence_here
                to_declare |= {field_of[path]} if evidence_here else set()
    if findings:
        yield error(
            "private fields are shown to the policy: keep them out of prompts, observations and messages until the "
            "episode has ended",
            findings,
        )
    if observed:
        declared = repr(tuple(sorted(to_declare))).replace("'", '"')
        yield warning(
            "observations show private fields: keep them out until the episode has ended; or, if finding them is the "
            f"task, declare it in the class (`discoverable_fields = {declared}`)",
            observed,
        )


async def _answers_described(target: ValidationTarget, plays: Mapping[Key, Sequence[Trajectory]]) -> list[Evidence]:
    """Return the tasks whose tools' descriptions hold the oracle's last text, which may be computed and in no field."""
    if not target.has_oracle:
        return []
    answers: dict[Key, str] = {}
    for play in await target.played("oracle"):
        text = final_text(script_of(play).actions) if play.failure is None else None
        if text is not None and len(words := without_label(text)) > 1:
            answers[play.split, play.task.id] = words
    texts = {key: "\n".join(_descriptions(played[-1].tools)) for key, played in plays.items()}
    # A word that the tools of other tasks have, too, is a word of the descriptions.
    answers = {key: answer for key, answer in answers.items()
               if sum(contains(answer, text) for text in texts.values()) <= max(1, len(texts) / 4)}  # fmt: skip
    return leaks("the oracle's answer", answers, texts, "the tools")


def _descriptions(schema: Any) -> Iterator[str]:
    """Yield the descriptions in tools, without the options of arguments, among which the right one must be."""
    if isinstance(schema, Mapping):
        for name, value in schema.items():
            if name == "description" and isinstance(value, str):
                yield value
            else:
                yield from _descriptions(value)
    elif isinstance(schema, (list, tuple)):
        for part in schema:
            yield from _descriptions(part)


def _key(leak: Evidence) -> Key:
    return leak.split or "", leak.task or ""


def _are_choices(values: Sequence[str], text: str) -> bool:
    """Return whether a text offers all values of a private list in another order, such as things to be put in order."""
    positions = [text.lower().find(value.lower()) for value in values]
    return len(values) >= CHOICES and min(positions) >= 0 and positions != sorted(positions)


def _is_vocabulary(holders: Mapping[tuple[str, str], set[Key]], field: str, value: str) -> bool:
    """Return whether a long value is a word of the environment's world; short ones are judged by their frequency."""
    return is_long(value) and len(holders.get((field, value), ())) > VOCABULARY


def _encoded_leaks(
    path: str,
    values: Mapping[Key, str],
    texts: Mapping[Key, str],
    lowered: Mapping[Key, str],
    source: str,
    significance: float,
) -> list[Evidence]:
    """Return the tasks whose texts hold their private value in another notation; see `encodings`."""
    by_name: defaultdict[str, dict[Key, str]] = defaultdict(dict)
    for key, value in values.items():
        if source in ("the prompt", "the public fields") and " " in value:
            continue  # to decode a text may be the task
        for name, text in encodings(value).items():
            by_name[name][key] = text
    for name, encoded in by_name.items():
        visible = sum(text.lower() in lowered.get(key, "") for key, text in encoded.items())
        if len(encoded) < len(values) / 2 or not visible:
            continue
        if leaked := leaks(f"{path} {name}", encoded, texts, source, significance=significance / len(by_name)):
            return leaked
    return []


def _names(path: str) -> frozenset[str]:
    """Return the names of the fields on the path to a leaf."""
    return frozenset(re.split(r"\[\d+\]|\.", path)) - {""}


def _secrets_shown(secrets: Mapping[str, str], plays: Mapping[Key, Sequence[Trajectory]]) -> list[Evidence]:
    """Return the places where the policy reads the values of secrets, one for each secret and kind of place."""
    evidence_of_secret: dict[tuple[str, str], Evidence] = {}
    for name, value in secrets.items():
        for play in [play for those in plays.values() for play in those]:
            for source, text in _read([play]).places():
                if value in text:
                    evidence_of_secret.setdefault((name, source), evidence(play, f"the secret {name} in {source}"))
    return list(evidence_of_secret.values())


def _with_episode(plays: Mapping[Key, Sequence[Trajectory]], leak: Evidence, value: str, source: str) -> Evidence:
    """Return evidence of a leak with the episode that shows it; a leak in public fields needs no episode."""
    value = next((spelling for spelling in (value, *encodings(value).values()) if repr(spelling) in leak.detail), value)
    for play in plays[_key(leak)]:
        if source != "the public fields" and contains(value, dict(_read([play]).places())[source]):
            return evidence(play, leak.detail)
    return leak


def leaks(
    path: str, values: Mapping[Key, str], texts: Mapping[Key, str], source: str, *, significance: float = SIGNIFICANCE
) -> list[Evidence]:
    """Return the tasks whose own texts contain their private value under a path, unless this is by chance.

    Args:
        path: the private field.
        values: its value by split and task.
        texts: the text that the policy reads, by split and task.
        source: the kind of text, in words.
        significance: the significance level of the test for short values.
    """
    return [
        Evidence(f"{path} {short(values[key], 60)!r} in {source}: …{_excerpt(values[key], texts[key])}…", *key)
        for key in disclosed(values, texts, significance=significance)
    ]


def _excerpt(value: str, text: str) -> str:
    position = text.lower().find(value.lower())
    return short(text[max(0, position - 20) : position + len(value) + 20], 100)


async def _gather(target: ValidationTarget) -> dict[Key, list[Trajectory]]:
    """Return the episodes of policies that solve nothing, by task."""
    plays: dict[Key, list[Trajectory]] = {}
    oracle = await target.played("oracle") if target.local is not None and target.has_oracle else ()

    limit = target.local.cls.limits.max_steps if target.local is not None else None
    per_episode = min(RARE_CALLS, limit or RARE_CALLS)

    def rare(start: int) -> Policy:
        async def policy(conversation: Conversation) -> PolicyResult:
            calls = rare_arguments(conversation.tools, oracle)[start : start + per_episode]
            return calls[conversation.turn - 1] if conversation.turn <= len(calls) else Answer("")

        return policy

    rarely = [await target.play(rare(start), tasks=target.sample_tasks(RARE_TASKS), turns=per_episode + 1)
              for start in range(0, min(RARE_CALLS, RARE_EPISODES * per_episode), per_episode)]  # fmt: skip
    made_here = [*await target.play(error_policy), *[play for part in rarely for play in part]]
    target.broken += [
        evidence(play, f"failed: {short(play.failure.message)}")
        for play in made_here
        if play.failure is not None and play.failure.kind == "environment"
    ]
    for play in [
        *await target.played("random"), *await target.played("empty"), *made_here,
    ]:  # fmt: skip
        plays.setdefault((play.split, play.task.id), []).append(play)
    return plays


def _read(plays: Sequence[Trajectory]) -> _Texts:
    """Return the texts that a policy reads in the episodes of one task."""
    observations: list[str] = []
    errors: list[str] = []
    for play in plays:
        ended = play.end_reason is not None and play.stopped is None and play.grade is None
        outputs = [item for item in play.items if item.get("type") == "function_call_output"]
        own_text = " ".join(str(item.get("arguments")) for item in play.items if item.get("type") == "function_call")
        mistakes = {step.call_id for step in play.steps if step.error is not None}
        # The last output may reveal the answer, because the episode has ended.
        for item in outputs[: -1 if ended else None]:
            text = _without_own_words(_with_decoded(str(item.get("output"))), own_text)
            (errors if item.get("call_id") in mistakes else observations).append(text)
    return _Texts(
        prompt_of(plays[-1]),
        json.dumps(list(plays[-1].tools), ensure_ascii=False),
        "\n".join(observations),
        "\n".join(errors),
        "\n".join(text for _, text in leaves("", plays[0].task.fields)),
    )


def _with_decoded(text: str) -> str:
    """Return a text with what its parts in base64 or hexadecimal say."""
    decoded = []
    for match in ENCODED.finditer(text):
        for decode in (_from_base64, bytes.fromhex):
            with contextlib.suppress(ValueError):
                plain = decode(match[0]).decode("utf-8")
                if plain.isprintable():
                    decoded.append(plain)
    return "\n".join([text, *decoded])


def _from_base64(text: str) -> bytes:
    return base64.b64decode(
        text.rstrip("=").replace("-", "+").replace("_", "/") + "=" * (-len(text.rstrip("=")) % 4), validate=True
    )


def _without_own_words(text: str, own_text: str) -> str:
    """Return the text without the words that the policy has said itself."""
    own_words = set(re.findall(r"[\w.+*/()-]+", own_text))
    return re.sub(r"[\w.+*/()-]+", lambda match: "" if match[0] in own_words else match[0], text)


@suite.check("reward-visible", "No observation shows the reward", "runtime.oracle_containment")
async def reward_visible(target: ValidationTarget) -> AsyncIterator[Problem]:
    rewards: list[Evidence] = []
    for name in ("oracle", "random", "empty"):
        try:
            plays: Sequence[Trajectory] = await target.played(name)
        except NotApplicable:
            continue
        for play in plays:
            for item in play.items:
                if item.get("type") == "function_call_output" and (match := _REWARD.search(str(item.get("output")))):
                    rewards.append(evidence(play, short(str(item.get("output"))[max(0, match.start() - 20) :], 100)))
                    break
    if rewards:
        yield warning(
            "observations show the reward: return it next to the text (`Result(text, reward=…)`), or the policy learns "
            "to optimize the number",
            rewards,
        )
