"""Patterns of questions about what only the user knows, in the words of any writer.

A pattern is looked for in sentences that ask for something, so it may be wide: the user who answers a question that was
not meant says too much, but one who overhears a question leaves the agent in the dark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ludus.environments.support_desk.reading import any_of

_REASONS: Final = (
    r"why", r"how come", r"reasons?", r"grounds", r"background", r"circumstances", r"situation", r"motiv\w+",
    r"prompt(?:s|ed|ing)?", r"caus(?:e|es|ed)", r"behind (?:it|this|that|your)", r"explain", r"elaborate",
    r"what(?:'s| is| has| was)? (?:happen\w*|going on|wrong|up|the (?:problem|issue|matter))",
    r"what (?:is )?(?:made|makes|making|led|leads|brings|brought|drives|drove)", r"brings you",
    r"(?:led|leads|brings|brought) (?:you )?to", r"(?:what|something|anything) (?:has |have )?(?:changed|happen\w*)",
    r"keeps? you", r"what(?:'s| is) (?:it|this) about", r"(?:problem|issue) with", r"describe (?:what|why|the|your)",
    r"more about (?:it|this|your)", r"wrong",
)  # fmt: skip


def reason(*words: str) -> re.Pattern[str]:
    """Return the pattern of questions about a reason, with further words of a domain."""
    return any_of((*_REASONS, *words))


def _pattern(words: Iterable[str]) -> re.Pattern[str]:
    return any_of(words)


OPENED: Final = _pattern((
    r"(?:un)?open(?:ed|ing)?", r"(?:un)?used?", r"(?:un)?seal(?:ed)?", r"condition", r"packag\w+", r"(?:un)?box(?:ed)?",
    r"unwrap\w*", r"intact", r"untouched", r"tried", r"using", r"(?:taken|took) (?:it )?out",
))  # fmt: skip
METHOD: Final = _pattern((
    r"card", r"credit", r"(?:refund|payment|payout) (?:method|option)s?", r"prefer\w*",
    r"(?:what|which) (?:form|way|method)",
    r"how (?:would|do|should|shall|can|will) (?:you|i|we) (?:like|want|prefer|refund|pay|get|receive|return|reimburse)",
    r"where (?:should|shall|do|would|can|may) [^?.]{0,30}(?:money|refund|amount|funds|sum|paid|credited)",
    r"(?:pay|paid|get|give|send|sent) [^?.]{0,12}back", r"reimburs\w+",
))  # fmt: skip
ADDRESS: Final = _pattern((
    r"new address", r"(?:which|what) address", r"(?<!mail )address(?!es)", r"where", r"location", r"destination",
    r"street", r"deliver(?:ed)? (?:it )?to", r"ship(?:ped)? (?:it )?to", r"sen[dt] (?:it )?to",
))  # fmt: skip
CONTENT: Final = _pattern((
    r"what(?:'s| is| are| will be| would be)? in", r"contents?", r"contain\w*", r"inside", r"in (?:it|them|there)",
    r"pack\w*", r"animals?", r"pets?", r"carry\w*", r"carried", r"transport\w*", r"bring\w*", r"unusual", r"special",
    r"(?:type|kind|sort)s? of (?:luggage|baggage|bags?|things?|items?|stuff|goods)", r"what (?:things|items|goods)",
    r"(?:put|goes|go) in(?:to|side)?", r"hold", r"what (?:are|is|do|will) you [^?.]{0,20}(?:tak|travel)\w*",
))  # fmt: skip
COUNT: Final = _pattern((
    r"how many", r"how much (?:extra |additional |more )?(?:luggage|baggage)", r"number of", r"several", r"count",
    r"(?:quantity|amount) of (?:bags|luggage|baggage)",
))  # fmt: skip
PLAN: Final = _pattern((
    r"plans?", r"tariffs?", r"(?:which|what|new) one", r"which of (?:them|these|our|the)",
    r"(?:change|switch|move|upgrade|go|downgrade)(?: you| it| over)? to",
))  # fmt: skip
USE: Final = _pattern((
    r"us(?:e|es|ed|ing|age)", r"purposes?", r"private(?:ly)?", r"personal(?:ly)?", r"commercial\w*", r"business\w*",
    r"company", r"professional\w*", r"(?:at|for) (?:home|work)", r"school", r"class(?:room)?", r"teach\w*", r"pupils?",
    r"students?", r"education\w*", r"household", r"who (?:is|are|will|else)",
))  # fmt: skip
LENGTH: Final = _pattern((
    r"how (?:long|many)", r"how much time", r"when", r"until when", r"till when", r"number of days", r"duration",
    r"period", r"length", r"days?(?! of birth)", r"last",
))  # fmt: skip
WHEN: Final = _pattern((
    r"when", r"what time", r"(?:which|what|new) (?:day|date|flight)(?! of birth)", r"days?",
    r"dates?(?! of birth)", r"exactly",
))  # fmt: skip
UNTIL: Final = _pattern((
    r"until", r"till", r"how (?:long|many)", r"when", r"resum\w+", r"(?:which|what|end) (?:day|date)(?! of birth)",
    r"dates?(?! of birth)", r"start again", r"duration", r"period", r"end of",
))  # fmt: skip
