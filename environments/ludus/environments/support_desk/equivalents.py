"""Other right ways to talk with the user: the oracle in the words and layouts of other clerks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Final

from ludus.environments.support_desk.cases import Case
from ludus.environments.support_desk.kinds import Value
from ludus.environments.support_desk.oracle import Policy, Voice, solve


def _written_out(value: Value) -> str:
    """Return a date such as March 9, 2026, and an amount such as 1,200; other values as they are."""
    text = str(value)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return f"{date.fromisoformat(text):%B %-d, %Y}"
    return f"{value:,}" if isinstance(value, int) else text


VOICES: Final[Mapping[str, Voice]] = {
    "two questions as a list": Voice(
        identity="Before we begin, please share:\n1. Your e-mail address\n2. Your date of birth",
        two="I have two questions:\n1. {one}\n2. {other}",
        proposal="**Proposed change**: {do} {id}\n- {details}\n\nPlease confirm.",
    ),
    "indirect questions": Voice(
        identity="I'd be glad to help. I just need your email address and your birthday to find your account.",
        again="Hmm, this does not match. I would need your {what} again.",
        record="May I ask which {noun} you mean?",
        questions={
            "reason": "I would like to understand what led to this.",
            "opened": "Please let me know whether you have unboxed it.",
            "to": "I need to know where the money should go: back to the card, or as store credit.",
            "address": "Please send me the street and city of the new destination.",
            "content": "Could you describe what you will be carrying?",
            "bags": "Please state the number of bags.",
            "plan": "Please name the plan that you have in mind.",
            "use": "May I ask whether this is for personal use, a business or a school?",
            "days": "Please tell me the number of days.",
            "until": "Please tell me the date on which it should resume.",
            "day": "Please specify the date.",
        },
        two="{one} Besides that: {other}",
        more="What else can I do for you?",
    ),
    "formal letters": Voice(
        identity="Good day. Kindly state your e-mail address and your date of birth for verification.",
        proposal="Dear customer,\n\nI am able to {do} {id} ({details}). Do I have your consent?\n\nKind regards",
        outcomes={
            "granted": "Dear customer,\n\nyour request was processed. As for your question: {facts}.\n\nKind regards",
            "refused": "Dear customer,\n\nI have to decline this, since our rules do not permit it. It is about "
            "{facts}.\n\nKind regards",
            "escalated": "Dear customer,\n\nyour case was forwarded to {team}, who answer within {facts} business "
            "days.\n\nKind regards",
        },
    ),
    "dates and amounts written out": Voice(shape=_written_out),
}
"""The clerks by what is different in their messages."""


def policies(case: Case) -> Mapping[str, Policy]:
    """Return the policies by what is different in them."""
    return {name: solve(case, voice) for name, voice in VOICES.items()}
