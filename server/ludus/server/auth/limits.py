"""The limits of one token: how much of a server its holder may use."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field

WRONG_TOKENS: Final = "wrong_tokens_per_minute"
"""The name of the limit on wrong tokens, which is one of client addresses and not of tokens."""

DEFAULT_WRONG_TOKENS: Final = 60.0
"""How many wrong tokens one client address may send in a minute, by default."""

STRANGER_REQUESTS: Final = "stranger_requests_per_second"
"""The name of the limit on requests without a valid credential, which is one of client addresses, too."""

DEFAULT_STRANGER_REQUESTS: Final = 200.0
"""How many such requests one client address may send in a second, by default, on average."""

_UNITS: Final = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
_VALUE: Final = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(|KiB|MiB|GiB|TiB)")


class TokenLimits(BaseModel):
    """What the holder of one token may use of a server, over all its connections and workers. None is no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    requests_per_second: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Requests in a second, on average: HTTP requests, and requests over a channel."""
    request_burst: int | None = Field(default=None, ge=1)
    """Requests at one time; by default those of one second."""
    steps_per_second: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """New steps in a second, on average, over all episodes and wires; 0.5 allows 30 in a minute."""
    step_burst: int | None = Field(default=None, ge=1)
    """Steps at one time; by default those of one second."""
    open_episodes: int | None = Field(default=None, ge=1)
    """Episodes that start or run at one time."""
    stored_bytes: int | None = Field(default=None, ge=1024)
    """Bytes in memory and in the journal of episodes that run or are kept; counted once a second."""

    @property
    def any(self) -> bool:
        """Whether there is a limit."""
        return any(value is not None for value in self._values())

    def over(self, defaults: TokenLimits) -> TokenLimits:
        """Return these limits, with those of `defaults` where these have none."""
        if not self.any:
            return defaults
        return TokenLimits.model_validate({**defaults.given(), **self.given()})

    def given(self) -> dict[str, float | int]:
        """Return the limits that are set, by name."""
        return {name: value for name, value in zip(type(self).model_fields, self._values(), strict=True) if value}

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Return the limits in texts such as `steps_per_second=100` and `stored_bytes=2GiB`.

        Raises:
            ValueError: a text is no limit, or its value is not valid.
        """
        return cls.model_validate(parse_limits(texts, cls.model_fields))

    def _values(self) -> tuple[float | int | None, ...]:
        return (
            self.requests_per_second, self.request_burst, self.steps_per_second, self.step_burst, self.open_episodes,
            self.stored_bytes,
        )  # fmt: skip


def parse_limits(texts: Iterable[str], names: Iterable[str]) -> dict[str, float | int | None]:
    """Return the limits in texts of the form NAME=VALUE, by name; `off` is None.

    Args:
        texts: the texts. A value may have a unit: KiB, MiB, GiB or TiB.
        names: the names of the limits that there are.

    Raises:
        ValueError: a text has another form, an unknown name, or a name that was given before.
    """
    all_names = tuple(names)
    limits: dict[str, float | int | None] = {}
    for text in texts:
        name, _, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if name not in all_names:
            near = difflib.get_close_matches(name, all_names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(all_names)}"
            raise ValueError(f"no limit {name!r}; {hint}")
        if name in limits:
            raise ValueError(f"the limit {name!r} is given twice")
        if value == "off":
            limits[name] = None
            continue
        match = _VALUE.fullmatch(value)
        if match is None or (match[2] and name != "stored_bytes"):
            unit = ", perhaps with a unit such as 2GiB" if name == "stored_bytes" else ""
            raise ValueError(f"{text!r}: give a number{unit}, such as {name}=100, or {name}=off")
        number = float(match[1]) if "." in match[1] else int(match[1])
        limits[name] = number * _UNITS[match[2]] if match[2] else number
    return limits
