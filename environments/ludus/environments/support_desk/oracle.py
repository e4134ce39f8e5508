"""A policy that works a case as a careful clerk does, with every step of the dialogue."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ludus.environments.support_desk.cases import Case, Request
from ludus.environments.support_desk.kinds import IDENTITY, Value
from ludus.protocol import Answer, Call, StepResult, text_of

Policy = Generator[Call | Answer, StepResult, None]
Part = Generator[Call | Answer, StepResult, str]

QUESTIONS: Final[Mapping[str, str]] = {
    "reason": "Could you tell me why, please?",
    "opened": "Has the item been opened?",
    "to": "Do you prefer your card or store credit?",
    "address": "What is the new address?",
    "content": "What is in the bags?",
    "bags": "How many bags do you need?",
    "plan": "Which plan would you like?",
    "use": "What is it used for: a business, a school or at home?",
    "days": "For how many days?",
    "until": "Until when?",
    "day": "Which day is it about?",
}
"""A question about each slot."""
PROPOSALS: Final[Mapping[str, str]] = {
    "refund_order": "refund", "cancel_order": "cancel", "change_address": "change the address of",
    "cancel_booking": "cancel", "change_flight": "change the flight of", "add_bags": "add bags to",
    "change_plan": "change the plan of", "credit_bill": "give a credit for", "suspend_line": "suspend",
    "refund_charge": "refund the charge of", "pause_subscription": "pause",
}  # fmt: skip
"""What each tool does, in the words of a proposal."""
OUTCOMES: Final[Mapping[str, str]] = {
    "granted": "That is done. To answer your question: {facts}.",
    "refused": "Unfortunately that is not possible. What counts here is {facts}.",
    "escalated": "I have escalated this to {team}. They answer in {facts} working days.",
}
"""What the user must learn, by what became of the request."""
_MOST_REPLIES: Final = 5


@dataclass(frozen=True, slots=True)
class Voice:
    """How a clerk says things.

    Attributes:
        identity: asks for what proves the identity.
        again: asks once more for `{what}`.
        record: asks which `{noun}` it is about.
        questions: asks about each slot.
        two: puts two questions into a message.
        proposal: asks for consent to `{do}` a record `{id}`, with `{details}`.
        outcomes: says what became of a request with `{facts}` and, if it was passed on, `{team}`.
        more: asks for further wishes.
        shape: writes a value.
    """

    identity: str = "Hello! Please tell me your e-mail address and your date of birth."
    again: str = "That is not what is on file. Could you tell me your {what} once more, please?"
    record: str = "Which {noun} is it about?"
    questions: Mapping[str, str] = field(default_factory=lambda: QUESTIONS)
    two: str = "{one} {other}"
    proposal: str = "I would {do} {id}, with {details}. Shall I do that?"
    outcomes: Mapping[str, str] = field(default_factory=lambda: OUTCOMES)
    more: str = "Is there anything else I can do for you?"
    shape: Callable[[Value], str] = str


PLAIN: Final = Voice()


def say(message: str) -> Part:
    """Tell the user something, and return the answer."""
    result = yield Call("reply", {"message": message})
    return text_of(result.content)


def identify(case: Case, voice: Voice = PLAIN) -> Part:
    """Ask for what proves the identity, once more if it is not as on file, and find the customer."""
    text = yield from say(voice.identity)
    for name, question in (("email", "e-mail address"), ("birth", "date of birth")):
        if getattr(case.user, name) not in text:
            text += yield from say(voice.again.format(what=question))
    yield Call("find_customers", {"query": case.user.email})
    yield Call("list_records", {"customer_id": case.user.id})
    return text


def ask_all(request: Request, voice: Voice = PLAIN) -> Part:
    """Ask for all that only the user knows, two questions at a time."""
    text, slots = "", list(request.ask.says)
    for start in range(0, len(slots), 2):
        asked = [voice.questions[slot] for slot in slots[start : start + 2]]
        text += yield from say(voice.two.format(one=asked[0], other=asked[1]) if len(asked) == 2 else asked[0])
    return text


def proposal(request: Request, arguments: Mapping[str, Value], wish: Mapping[str, Value], voice: Voice = PLAIN) -> str:
    """Return a message that asks for consent to a change."""
    values = {**wish, **arguments}
    details = ", ".join(f"{name.replace('_', ' ')}: {voice.shape(value)}" for name, value in values.items())
    return voice.proposal.format(do=PROPOSALS[request.kind.tool], id=request.id, details=details)


def announcement(request: Request, voice: Voice = PLAIN) -> str:
    """Return what the user must learn, in words."""
    decision = request.decision
    facts = " and ".join(voice.shape(figure) for figure in decision.figures)
    return voice.outcomes[decision.outcome].format(facts=facts, team=decision.code)


def settle(case: Case, request: Request, voice: Voice = PLAIN) -> Part:
    """Make the change that the policy allows, or log what it wants instead."""
    decision, domain = request.decision, case.domain
    if decision.outcome == "refused":
        yield Call("log_refusal", {"record_id": request.id, "rule": decision.code})
    elif decision.outcome == "escalated":
        yield Call("escalate", {"record_id": request.id, "team": decision.code})
    else:
        first = request.kind.decide(case.policy, request.owner, request.ask, request.ask.wish)
        text = yield from say(proposal(request, first.arguments, request.ask.wish, voice))
        if not text.startswith("Yes"):
            yield from say(proposal(request, decision.arguments, {**request.ask.wish, **request.wish}, voice))
        yield Call(request.kind.tool, {domain.id_parameter: request.id, **decision.arguments})
    return ""


def work(case: Case, request: Request, voice: Voice = PLAIN) -> Part:
    """Deal with one request, until the user has accepted the outcome."""
    if request.decision.code == IDENTITY:
        yield from say(voice.record.format(noun=case.domain.noun))
    else:
        yield Call("show_record", {"record_id": request.id})
        if request.decision.code != "OWNER":
            yield from look_up(case, request)
            yield from ask_all(request, voice)
    yield from settle(case, request, voice)
    text = ""
    for _ in range(_MOST_REPLIES):
        text = yield from say(announcement(request, voice))
        if not any(word in text for word in ("exception", "not accept that", "Other companies")):
            break
    return text


def look_up(case: Case, request: Request) -> Part:
    """Look at what belongs to a record."""
    record = request.ask.record
    if request.kind.name == "airline/change":
        route = {"origin": record.origin, "destination": record.destination}
        yield Call("find_flights", {**route, "day": str(request.wish["day"])})
    elif request.kind.name == "telecom/credit":
        yield Call("find_outages", {"city": request.owner.city})
    return ""


def solve(case: Case, voice: Voice = PLAIN) -> Policy:
    """Work the whole case."""
    yield from identify(case, voice)
    for number, request in enumerate(case.requests):
        text = yield from work(case, request, voice)
        if number + 1 < len(case.requests) and "one more thing" not in text:
            yield from say(voice.more)
    yield Call("end_conversation", {"message": "Thank you. Goodbye!"})
