"""Negotiation between two seats: items, contracts and prices, with values that only their own seat sees."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from ludus.environments.negotiation.drawing import Drawn, draw_scenario, scenario_of
from ludus.environments.negotiation.exploits import policies
from ludus.environments.negotiation.opponents import STYLES, Opponent, acceptable, best_deals
from ludus.environments.negotiation.prompts import briefing
from ludus.environments.negotiation.reactions import meeting, needs_of
from ludus.environments.negotiation.scenario import SEATS, Deal
from ludus.environments.negotiation.tasks import DOMAINS, OPPONENTS, ROUNDS, Kind, NegotiationTask, kinds_of
from ludus.environments.negotiation.terms import read_terms, write_terms
from ludus.protocol import Answer, Call, Component, EpisodeLimits, Reward, StepResult
from ludus.server import Match, ProceduralEnvironment, SeatedEnvironment, TaskDraw, ToolError, tool

MESSAGES: Final = 2
"""How many messages a turn may have."""

LONGEST_MESSAGE: Final = 300
"""The most characters of a message."""


class Offer(NamedTuple):
    """An offer on the table."""

    number: int
    seat: str
    deal: Deal


class Event(NamedTuple):
    """Something that happened, which both seats are shown."""

    kind: str
    """`offer`, `accept`, `reject`, `leave` or `message`."""
    seat: str
    offer: Offer | None = None
    text: str = ""


class NegotiationMatch(Match[NegotiationTask]):
    """The offers so far, and whose turn it is."""

    seats = SEATS
    opponents = tuple(STYLES)

    def setup(self) -> None:
        """Prepare the table; `first` begins."""
        self.scenario = scenario_of(self.task.scenario)
        self.events: list[Event] = []
        self.open: Offer | None = None
        self.deal: Deal | None = None
        self.turns = 0
        self.said = 0
        self._offers = 0
        self._scripted = {
            seat: Opponent(self.scenario, number, self.opponent, needs_of(self.task.scenario, number))
            for number, seat in enumerate(self.seats)
            if seat not in self.played
        }
        self._best = {seat: self._best_for(number, shared=False) for number, seat in enumerate(self.seats)}
        self._best_joint = {seat: self._best_for(number, shared=True) for number, seat in enumerate(self.seats)}
        self.pass_to("first")

    def default_opponent(self) -> str:
        """Return the task's own opponent."""
        return self.task.opponent

    @property
    def round(self) -> int:
        """The round, from 1; each has a turn of both seats."""
        return min(self.turns // len(self.seats) + 1, self.task.rounds)

    @property
    def last_turn(self) -> bool:
        """Whether there is no turn after this one."""
        return self.turns == len(self.seats) * self.task.rounds - 1

    def propose(self, seat: str, deal: Deal) -> None:
        """Put an offer on the table."""
        self._offers += 1
        self.open = Offer(self._offers, seat, deal)
        self.events.append(Event("offer", seat, self.open))
        for opponent in self._scripted.values():
            if seat in self.played:
                opponent.hear(deal)
        self._next(seat)

    def accept(self, seat: str) -> None:
        """Make the deal of the open offer."""
        assert self.open is not None
        self.deal = self.open.deal
        self.events.append(Event("accept", seat, self.open))
        self.finish(self._rewards(self.deal))

    def reject(self, seat: str) -> None:
        """Decline the open offer, if there is one."""
        self.events.append(Event("reject", seat, self.open))
        self.open = None
        self._next(seat)

    def walk_away(self, seat: str) -> None:
        """End without a deal."""
        self.events.append(Event("leave", seat))
        self.finish(self._rewards(None))

    def say(self, seat: str, text: str) -> None:
        """Say something; the turn goes on."""
        self.said += 1
        self.events.append(Event("message", seat, text=text))
        for opponent in self._scripted.values():
            if seat in self.played:
                opponent.listen(text)

    def act(self, seat: str, opponent: str) -> None:
        """Take the turn of a seat that no agent plays."""
        script = self._scripted[seat]
        offer = self.open
        if offer is not None and script.accepts(offer.deal, self.rng, self.last_turn):
            self.accept(seat)
        elif self.last_turn:
            self.reject(seat)
        else:
            if reply := script.reply():
                self.say(seat, reply)
            self.propose(seat, script.offers(offer.deal if offer is not None else None, self.rng))

    def left(self, seat: str) -> Mapping[str, Reward]:
        """A seat that leaves has walked away."""
        return {
            name: reward.model_copy(update={"reason": f"{seat} left the negotiation"})
            for name, reward in self._rewards(None).items()
        }

    def _next(self, seat: str) -> None:
        self.turns += 1
        self.said = 0
        if self.turns == len(self.seats) * self.task.rounds:
            self.finish(self._rewards(None))
        else:
            self.pass_to(_other(seat))

    def _best_for(self, seat: int, shared: bool) -> Deal:
        """Return the best deal for a seat, or both: of what a scripted opponent accepts, or of all rational ones."""
        other = 1 - seat
        deals = acceptable(self.scenario, other, self.opponent) if self._plays(other) else self.scenario.rational()
        return best_deals(deals, self.scenario, seat, shared)

    def _plays(self, seat: int) -> bool:
        return self.seats[seat] in self._scripted

    def _rewards(self, deal: Deal | None) -> dict[str, Reward]:
        return {seat: self._reward(number, deal) for number, seat in enumerate(self.seats)}

    def _reward(self, seat: int, deal: Deal | None) -> Reward:
        scenario, name = self.scenario, self.seats[seat]
        share = joint = efficiency = nash = 0.0
        if deal is not None:
            share = _part(scenario.surplus(seat, deal), scenario.surplus(seat, self._best[name]))
            joint = _part(scenario.joint(deal), scenario.joint(self._best_joint[name]))
            efficiency = _part(scenario.joint(deal), scenario.best_joint)
            nash = _part(scenario.nash_product(deal), scenario.nash_product(scenario.nash_solution()))
        shared = self.task.scoring == "shared"
        return Reward.of(
            joint if shared else share,
            {
                "share": Component(value=share, weight=0.0 if shared else 1.0),
                "joint": Component(value=joint, weight=1.0 if shared else 0.0),
                "deal": Component(value=float(deal is not None), weight=0.0),
                "efficiency": Component(value=efficiency, weight=0.0),
                "nash": Component(value=nash, weight=0.0),
            },
        )


class Negotiation(ProceduralEnvironment[NegotiationTask], SeatedEnvironment[NegotiationTask, NegotiationMatch]):
    """Negotiate items, contracts and prices with another agent or a scripted opponent whose values are hidden."""

    version = "0.2.0"
    match_class = NegotiationMatch
    difficulties = kinds_of()
    variants = {
        "easy": {"difficulties": kinds_of(difficulties=["easy"]), "random_baseline": 0.05},
        "medium": {"difficulties": kinds_of(difficulties=["medium"]), "random_baseline": 0.01},
        "hard": {"difficulties": kinds_of(difficulties=["hard"]), "random_baseline": 0.01},
        "price": {"difficulties": kinds_of(domains=["price"]), "random_baseline": 0.01},
        "shared": {"difficulties": kinds_of(domains=DOMAINS[:2], scoring="shared"), "random_baseline": 0.12},
    }
    reward_range = (0.0, 1.0)
    random_baseline = 0.02  # the average reward of random offers, where every fifth turn accepts what is open
    limits = EpisodeLimits(max_steps=100)
    blocking = False

    @classmethod
    def make_task(cls, draw: TaskDraw[Kind]) -> NegotiationTask:
        """Draw a negotiation; kinds take turns, and so do the scripted opponents of each."""
        kind = draw.difficulty
        stream = f"negotiation:{draw.split}:{draw.secret}:{kind.difficulty}:{kind.domain}:{kind.scoring}:{draw.place}"
        opponents = OPPONENTS[kind.difficulty]
        return NegotiationTask(
            id=draw.id, domain=kind.domain, difficulty=kind.difficulty, scoring=kind.scoring,
            opponent=opponents[draw.index // len(draw.difficulties) % len(opponents)], rounds=ROUNDS[kind.difficulty],
            scenario=draw_scenario(stream, draw.split, kind.difficulty, kind.domain).code,
        )  # fmt: skip

    @classmethod
    def task_identity(cls, task: NegotiationTask, draw: TaskDraw[Kind]) -> str:
        """Return the values of both seats."""
        return Drawn(task.scenario, task.domain, task.difficulty).identity

    def setup(self) -> None:
        """Note which events the seat has seen."""
        self._seen = 0
        self._number = SEATS.index(self.seat)

    def prompt(self) -> str:
        """Return what the seat may know, and the rules."""
        alone = len(self.match.played) == 1
        given = briefing(self.task, self.match.scenario, self._number, MESSAGES, alone)
        return f"{given}\n\nYou are `{self.seat}`.\n{self.observe()}"

    def observe(self) -> str:
        """Return what happened since the seat last looked, and what comes next."""
        lines = [self._shown(event) for event in self.match.events[self._seen :]]
        self._seen = len(self.match.events)
        return "\n".join([*lines, self._state()])

    def _shown(self, event: Event) -> str:
        mine = event.seat == self.seat
        who, offer = "You" if mine else "The other side", event.offer
        if event.kind == "message":
            return f'{who} said: "{event.text}"'
        if event.kind == "leave":
            return f"{who} walked away."
        if offer is None:
            return f"{who} passed."
        if event.kind != "offer":
            return f"{who} {event.kind}ed offer {offer.number}."
        scenario = self.match.scenario
        terms, points = write_terms(scenario, self._number, offer.deal), scenario.value(self._number, offer.deal)
        return f"{who} made offer {offer.number}: {terms}. It is worth {points} points to you."

    def _state(self) -> str:
        match = self.match
        if match.finished:
            if match.deal is None:
                return "The negotiation has ended without a deal."
            return f"There is a deal. You get {match.scenario.value(self._number, match.deal)} points."
        of = f"Round {match.round} of {match.task.rounds}."
        return f"{of} It is your turn." if match.to_move == self.seat else f"{of} It is the other side's turn."

    @tool(move=True)
    def propose(self, terms: str) -> str:
        """Make an offer. It replaces your earlier ones.

        Args:
            terms: one value for each issue, in the form NAME=VALUE, NAME=VALUE.
        """
        deal = read_terms(self.match.scenario, self._number, terms)
        if self.match.last_turn:
            raise ToolError("This is the last turn, so an offer comes too late. Use `accept` or `walk_away`.")
        self.match.propose(self.seat, deal)
        return self.observe()

    @tool(move=True)
    def accept(self, offer: Annotated[int, Field(ge=1, le=1_000)]) -> str:
        """Accept the open offer of the other side. This makes the deal.

        Args:
            offer: the number of the offer.
        """
        self._check_open(offer)
        self.match.accept(self.seat)
        return self.observe()

    @tool(move=True)
    def reject(self, offer: Annotated[int, Field(ge=1, le=1_000)]) -> str:
        """Decline the open offer of the other side without making one.

        Args:
            offer: the number of the offer.
        """
        self._check_open(offer)
        self.match.reject(self.seat)
        return self.observe()

    @tool(move=True)
    def walk_away(self, reason: str) -> str:
        """End the negotiation without a deal.

        Args:
            reason: why, which the other side reads.
        """
        self.match.say(self.seat, _read_message(reason))
        self.match.walk_away(self.seat)
        return self.observe()

    @tool(move=True)
    def message(self, text: str) -> str:
        """Say something to the other side. It is still your turn afterwards.

        Args:
            text: what to say, in one line.
        """
        said = _read_message(text)
        if self.match.said >= MESSAGES:
            raise ToolError(f"You have sent {MESSAGES} messages in this turn. Make an offer, accept or reject.")
        self.match.say(self.seat, said)
        return self.observe()

    def _check_open(self, number: int) -> None:
        """Refuse a number that is not that of the other seat's open offer.

        Raises:
            ToolError: with what is open instead.
        """
        found = self.match.open
        if found is None or found.seat == self.seat:
            raise ToolError("The other side has no open offer. Make one yourself with `propose`.")
        if number != found.number:
            raise ToolError(f"Offer {number} is not open. The open offer of the other side is {found.number}.")

    @classmethod
    def oracle(cls, task: NegotiationTask) -> Generator[Call | Answer, StepResult, None]:
        """Meet the needs of the opponent; then offer the best deals that each opponent accepts."""
        for need in needs_of(task.scenario, 1):
            yield Call("message", {"text": meeting(need)})
        yield from _offers(task)

    @classmethod
    def exploits(cls, task: NegotiationTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `exploits.py`."""
        return policies(scenario_of(task.scenario), task.rounds)

    @classmethod
    def equivalents(cls, task: NegotiationTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return other ways to meet the needs of the opponent and to write the terms."""
        first, second = needs_of(task.scenario, 1)
        best = write_terms(scenario_of(task.scenario), 0, _best_offers(task)[0])

        def say(*messages: str) -> Generator[Call | Answer, StepResult, None]:
            for message in messages:
                yield Call("message", {"text": message})

        def ask_first() -> Generator[Call | Answer, StepResult, None]:
            """Ask, with an offer that may be accepted at once, and meet both needs in the next turn."""
            yield from say("What matters most to you, and what do you need?")
            result = yield Call("propose", {"terms": best})
            if not result.ended:
                yield from say(f"Of course, we can arrange {first.text}.", f"You will also have {second.text}!")
                yield from _offers(task)

        def meet(*messages: str, write: Callable[[str], str] = str) -> Generator[Call | Answer, StepResult, None]:
            yield from say(*messages)
            yield from _offers(task, write)

        return {
            "questions first": ask_first(),
            "one need": meet(f"I agree to {first.text}."),
            "the other need": meet(f"{second.text.capitalize()} is no problem."),
            "both needs in one message": meet(f"You get {first.text}, and {second.text} as well."),
            "terms in lines": meet(meeting(first), write=lambda terms: terms.replace(", ", "\n").replace("=", ": ")),
            "terms in capitals": meet(meeting(second), write=lambda terms: f"{terms.upper()}."),
        }


def _best_offers(task: NegotiationTask) -> list[Deal]:
    """Return the best deal for `first` that each opponent accepts.

    The weakest opponent comes first, so that none of them gets an offer that is better for it than it asks for.
    """
    scenario, shared = scenario_of(task.scenario), task.scoring == "shared"
    sets = [acceptable(scenario, 1, strength) for strength in STYLES if strength != "random"]
    return [best_deals(set_, scenario, 0, shared) for set_ in sets]


def _offers(task: NegotiationTask, write: Callable[[str], str] = str) -> Generator[Call | Answer, StepResult, None]:
    """Offer the best deal that each opponent accepts, and walk away if none does."""
    scenario = scenario_of(task.scenario)
    for deal in _best_offers(task):
        result = yield Call("propose", {"terms": write(write_terms(scenario, 0, deal))})
        if result.ended:
            return
    yield Call("walk_away", {"reason": "We do not come together."})


def _other(seat: str) -> str:
    return SEATS[1 - SEATS.index(seat)]


def _part(value: int, most: int) -> float:
    """Return a part of the most as a number between 0 and 1."""
    return min(1.0, max(0, value) / most) if most > 0 else 0.0


def _read_message(text: str) -> str:
    """Return a message as one line, in which nothing ends the quotes around it.

    Raises:
        ToolError: it is empty, too long, or has characters that are not printed.
    """
    line = " ".join(text.split()) if len(text) <= LONGEST_MESSAGE else text
    if len(text) > LONGEST_MESSAGE:
        raise ToolError(f"The message is {len(text):,} characters long; the most is {LONGEST_MESSAGE}.")
    if not line:
        raise ToolError("The message is empty. Say something, or make an offer.")
    if not line.isprintable():
        raise ToolError("The message has characters that are not printed. Use plain text.")
    return line.replace("\\", "/").replace('"', "'")
