"""The simulated user: knows some facts, wants something, answers what is asked, and leaves when patience runs out.

How this works. Each message of the agent is read by the rules of `reading.py`. In this order, the user

1. ignores a message stuffed with facts,
2. notes what the message states (`heard`), for the questions that the user has,
3. answers at most three questions about what the user knows, each with one sentence, and names a question that the user
   did not understand,
4. or, if the message proposes a change, says yes to it, corrects it, or changes the wish once,
5. or reacts to a refusal (insists, then gives in) or to an escalation,
6. and comes up with the next request once the one before is settled.

A yes depends on what the user wants and never on what the policy allows, so that it reveals nothing. What the user says
follows from the case and the episode's generator alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ludus.environments.support_desk.cases import Case, Request
from ludus.environments.support_desk.kinds import Value
from ludus.environments.support_desk.reading import (
    Facts,
    Reading,
    any_of,
    facts_of,
    is_one_of_several,
    says,
    working_days,
)

MOST_FACTS: Final = 18
"""The facts in one message from which on the user does not read it."""
MOST_STRAYS: Final = 12
"""The numbers or dates in all messages, besides those that belong to the case, from which on none of them counts."""
_DATE_STRAYS: Final = 4
_ANSWERS: Final = 3
_ORDINALS: Final = ("first", "second", "third", "fourth")
_STRAYS: Final = 3
"""The other dates or numbers next to a fact, besides those of the case, from which on it is not stated but guessed."""

_EMAIL: Final = any_of((r"e-?mails?(?: address)?", r"mail address"))
_BIRTH: Final = any_of((r"birth ?(?:day|date)?", r"date of birth", r"d\.?o\.?b", r"born", r"birthdate"))
_NAME: Final = any_of((r"(?:your|full|first|last|the) name", r"name on", r"who (?:am i|are you)"))
_FILLERS: Final[Mapping[str, tuple[str, ...]]] = {
    "calm": ("",),
    "brisk": ("",),
    "chatty": ("What a day, it rains all the time here.", "My cat sits on the keyboard, sorry.", "", ""),
    "upset": ("This really takes long.", "I am not happy with you at all.", "", ""),
}
_GREETINGS: Final = (
    "Hello, this is {name}.", "Hi, my name is {name}.", "Good day, {name} here.", "Hello! I am {name}.",
)  # fmt: skip
_INSIST: Final = (
    "That cannot be true. Please make an exception for me.",
    "I will not accept that. Just do it, you can surely do that.",
    "Other companies do that without any discussion!",
)
_GIVE_IN: Final = ("All right, if it has to be so.", "Fine. I do not like it, but fine.", "Okay, then not.")


@dataclass(slots=True)
class Standing:
    """Where one request stands from the user's point of view.

    Attributes:
        request: the request.
        wish: what the user wants at the moment.
        changed: whether the user has changed the wish.
        asked: the slots that the user has spoken about.
        pushes: how often the user still insists.
        consents: the messages to which the user said yes.
        heard: which of the facts that the user must learn were stated.
        questioned: whether the user has asked for them.
    """

    request: Request
    wish: Mapping[str, Value]
    pushes: int
    changed: bool = False
    asked: set[str] = field(default_factory=set)
    consents: list[Reading] = field(default_factory=list)
    heard: set[str] = field(default_factory=set)
    questioned: bool = False

    @property
    def informed(self) -> float:
        """The share of the facts that the user has learned."""
        wanted = {str(figure) for figure in self.request.decision.figures}
        return len(self.heard & wanted) / len(wanted) if wanted else 1.0


class User:
    """The user of one episode.

    Args:
        case: the case.
        rng: the generator of the user's words.
        settled: returns whether the desk has changed, refused or passed on something about a record.
    """

    def __init__(self, case: Case, rng: random.Random, settled: Callable[[str], bool]) -> None:
        self.case, self._rng, self._settled = case, rng, settled
        self.standings = [Standing(request, request.ask.wish, request.pushes) for request in case.requests]
        self.known = 1
        self.patience = case.patience
        self.said = ""
        self.times: dict[str, int] = {}
        self.left = False
        self._strays: set[str] = set()
        self._wrong_days: set[str] = set()
        self._own = _own_facts(case)

    @property
    def verified(self) -> bool:
        """Whether the user has given the e-mail address and date of birth on file."""
        facts = self.facts_said
        return self.case.user.email in facts.emails and self.case.user.birth in facts.dates

    @property
    def facts_said(self) -> Facts:
        """The facts in all that the user has said."""
        return facts_of(self.said, self.case.policy.today)

    def opening(self) -> str:
        """Return the user's first message."""
        greeting = self._rng.choice(_GREETINGS).format(name=self.case.user.name)
        return self._speak(f"{greeting} {self._request(self.standings[0])}")

    def hear(self, message: Reading) -> str:
        """Return the user's answer to a message; afterwards, `left` says whether the user has left."""
        self.patience -= 1
        if self._stuffed(message):
            self.patience -= 1
            return self._speak("That is far too much at once. Please tell me only what I need to know.")
        self.note(message)
        parts = self._respond(message)
        if self.patience <= 0:
            self.left = True
            return self._speak("I have no more time for this. Goodbye.")
        return self._speak(" ".join(one for one in (*parts, self._rng.choice(_FILLERS[self.case.mood])) if one))

    def note(self, message: Reading) -> None:
        """Note what a message states; of a message stuffed with facts, nothing."""
        if self._stuffed(message):
            return
        own = self._own | self.facts_said.all() | {self.case.policy.today.isoformat()}
        facts = message.facts
        self._strays |= (facts.dates | facts.times | facts.numbers) - own - _policy_numbers(self.case)
        days = working_days(message.text)
        wanted = {str(figure) for one in self.standings for figure in one.request.decision.figures}
        self._wrong_days |= days - wanted
        for standing in self.standings[: self.known]:
            decision = standing.request.decision
            allowed = own | {str(one) for one in (*decision.also, *decision.figures)}
            standing.heard |= {str(one) for one in decision.figures if _states(message, str(one), allowed)}
        if self._confused:
            for standing in self.standings:
                standing.heard.clear()

    @property
    def _confused(self) -> bool:
        """Whether so many different figures were stated that the user believes none."""
        dates = [stray for stray in self._strays if "-" in stray]
        return len(self._strays) > MOST_STRAYS or len(dates) > _DATE_STRAYS or len(self._wrong_days) > 1

    def _stuffed(self, message: Reading) -> bool:
        return len(message.facts.all()) > MOST_FACTS

    def _respond(self, message: Reading) -> list[str]:
        answers = self._answers(message)
        if not answers:
            answers = self._reactions(message) or self._acknowledge(message)
        if following := self._following(message):
            answers.append(following)
        return answers

    # Questions

    def _answers(self, message: Reading) -> list[str]:
        """Return the answers to questions about what the user knows."""
        open_ones, slots = self._open(), self.slots()
        proposes = self._proposes(message)
        found: list[str] = []
        for slot in message.asked(slots):
            if len(found) == _ANSWERS:
                found.append("Those are too many questions at once. Please ask me the others again.")
                break
            text = self._answer(slot, open_ones, proposes)
            if text and text not in found:
                found.append(text)
        overheard = message.overheard(slots)
        if found and overheard and not proposes:
            ordinal = dict(enumerate(_ORDINALS, 1)).get(overheard[0], "last")
            found.append(f"I did not understand your {ordinal} question. Please ask it in other words.")
        return found

    def slots(self) -> dict[str, re.Pattern[str]]:
        """Return the patterns of questions that the user can answer at the moment."""
        slots = {"email": _EMAIL, "birth": _BIRTH, "name": _NAME, "record": self._record_words()}
        for standing in self._open():
            slots |= standing.request.kind.slots
        return slots

    def _open(self) -> list[Standing]:
        """Return the requests that the agent knows of and has not dealt with."""
        return [standing for standing in self.standings[: self.known] if not self._settled(standing.request.id)]

    def _answer(self, slot: str, standings: list[Standing], proposes: bool) -> str:
        case = self.case
        if slot in ("email", "birth"):
            if proposes and self.verified:
                return ""
            return self._identity(slot)
        if slot == "name":
            return "" if proposes else f"My name is {case.user.name}."
        if slot == "record":
            return "" if proposes else self._records(standings)
        for standing in standings:
            says_it = standing.request.ask.says
            if slot in says_it and not (proposes and slot in standing.asked):
                if slot in standing.asked:
                    self.patience -= 1
                standing.asked.add(slot)
                if standing.changed and standing.request.change and slot in standing.request.change.wish:
                    return standing.request.change.says
                return says_it[slot]
        return ""

    def _identity(self, slot: str) -> str:
        time = self.times[slot] = self.times.get(slot, 0) + 1
        true = str(getattr(self.case.user, slot))
        value = self.case.wrong.get(slot) or (self.case.first.get(slot, true) if time == 1 else true)
        if slot == "email":
            return f"My e-mail address is {value}."
        return f"I was born on {value}."

    def _records(self, standings: list[Standing]) -> str:
        noun = self.case.domain.noun
        found = []
        for standing in standings:
            request = standing.request
            if request.knows_id:
                found.append(f"The number of the {noun} is {request.id}.")
            else:
                found.append(f"I do not have the number. It is about {request.ask.what}.")
        return " ".join(found)

    def _record_words(self) -> re.Pattern[str]:
        noun = self.case.domain.noun
        return re.compile(
            rf"\b{noun}(?:'s)? ?(?:numbers?|ids?|references?|codes?)\b|\b(?:numbers?|ids?|references?|"
            rf"codes?) (?:of|for) "
            rf"(?:the|your|this|that) {noun}|\bwhich {noun}|\b(?:the|a|your) (?:ids?|reference)\b|"
            rf"\b(?:phone|mobile) number\b",
            re.IGNORECASE,
        )

    # Proposals, refusals and escalations

    def _proposes(self, message: Reading) -> bool:
        """Return whether a message asks for consent to a change of a record that the user wants changed."""
        return message.proposes and any(
            one.request.id in message.facts.ids and one.request.kind.words.search(message.text) for one in self._open()
        )

    def _reactions(self, message: Reading) -> list[str]:
        if message.proposes:
            found = []
            for standing in self._open():
                if standing.request.kind.words.search(message.text):
                    found.append(self._consider(standing, message))
            if found := list(dict.fromkeys(one for one in found if one)):
                return found
        if message.escalates:
            days = "In how many working days will I hear from them?"
            return ["All right.", *([] if message.facts.numbers else self._question(days))]
        if message.refuses:
            return self._refused(message)
        return []

    def _consider(self, standing: Standing, message: Reading) -> str:
        """Return the answer to a message that asks for consent."""
        request = standing.request
        if request.id not in message.facts.ids:
            if message.asks_more:
                return ""
            return (
                f"Yes to what exactly? Tell me the number of the {self.case.domain.noun} and what you would "
                f"do, with all "
                "amounts and dates."
            )
        if lacking := [name for name, value in standing.wish.items() if not says(message, value)]:
            return f"No, that is not what I want. {self._wanted(standing, lacking[0])}"
        if is_one_of_several(message):
            return "Which of them? Tell me exactly what you would do."
        if request.change and not standing.changed:
            standing.changed, standing.wish = True, {**standing.wish, **request.change.wish}
            return request.change.says
        standing.consents.append(message)
        return " ".join(["Yes, please do that.", *self._question(request.ask.question, standing)])

    def _wanted(self, standing: Standing, name: str) -> str:
        standing.asked.add(name)
        if standing.changed and standing.request.change:
            return standing.request.change.says
        return standing.request.ask.says.get(name, "")

    def _refused(self, message: Reading) -> list[str]:
        for standing in self.standings[: self.known]:
            if standing.pushes and not (self._settled(standing.request.id) and standing.informed == 1.0):
                standing.pushes -= 1
                return [self._rng.choice(_INSIST)]
        facts, ask = message.facts, "But tell me why: which date, number or price is it about?"
        return [self._rng.choice(_GIVE_IN), *([] if facts.dates | facts.numbers else self._question(ask))]

    def _question(self, text: str, standing: Standing | None = None) -> list[str]:
        """Return the user's question, once for each request, by default the last one.

        Whether it comes depends on what the message says, never on whether that is right: an agent that announces a
        decision to see whether the user has questions learns nothing.
        """
        one = standing or self.standings[self.known - 1]
        if one.questioned:
            return []
        one.questioned = True
        return [text]

    # What comes next

    def _acknowledge(self, message: Reading) -> list[str]:
        self.patience -= 0 if message.asks_more else 1
        if open_ones := self._open():
            what = open_ones[0].request.ask.what
            if message.asks_more:
                return [f"First of all: what about {what}?"]
            asks = any("?" in sentence for sentence in message.sentences)
            return ["I do not understand the question. Ask me in other words, please." if asks else "Okay. And now?"]
        if any(standing.informed < 1.0 for standing in self.standings[: self.known]) and not message.asks_more:
            return ["Okay, but you have not answered everything yet."]
        return ["Okay."] if self.known < len(self.standings) else ["No, that was all. Thank you."]

    def _following(self, message: Reading) -> str:
        """Return the next request once those before are settled, or if the agent asks for it."""
        if self.known == len(self.standings):
            return ""
        settled = all(self._settled(one.request.id) for one in self.standings[: self.known])
        if not settled and not message.asks_more:
            return ""
        standing = self.standings[self.known]
        self.known += 1
        return f"There is one more thing. {self._request(standing)}"

    def _request(self, standing: Standing) -> str:
        request = standing.request
        what = f"the {self.case.domain.noun} {request.id}" if request.knows_id and self._rng.random() < 0.5 else ""
        return f"{request.ask.opening.format(what=what or request.ask.what)} {request.remark}".strip()

    def _speak(self, text: str) -> str:
        self.said += f"\n{text}"
        return text


def _own_facts(case: Case) -> set[str]:
    """Return the figures of the records that the user asks about."""
    found: set[str] = set()
    for request in case.requests:
        found |= {str(value) for value in request.ask.record}
        found |= {str(value) for _, row in request.ask.rows for value in row}
        found |= {str(one) for one in (*request.decision.also, *request.decision.figures)}
        found |= {str(argument) for argument in request.decision.arguments.values()}
    return found | {"0", "1"}


def _policy_numbers(case: Case) -> set[str]:
    found = {str(param) for param in case.policy.params.values()}
    return found | {str(word) for words in case.policy.words.values() for word in words.values()}


def _states(message: Reading, value: str, allowed: set[str]) -> bool:
    """Return whether a message states a value, and not as one of several."""
    facts = message.facts
    kind = next((one for one in (facts.dates, facts.times, facts.numbers) if value in one), None)
    if kind is None:
        return False
    if len(kind - allowed) > _STRAYS:
        return False
    return not is_one_of_several(message, value)
