"""The tokens and limits with which two holders of the same weights are compared, such as the engine and the learner.

The tokens are ordinary text: with random tokens every probability is tiny, and rounding would hide the differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TEXT: Final = """\
A canary is a small bird. Miners took canaries down into the mine, because gas that a man does not smell makes a bird
fall from its perch long before it harms him. As long as the bird sang, the air was good; when it fell silent, all
of them left at once, before they asked how much gas there was. The number 42 is 2 * 3 * 7, and
{"name": "guess", "arguments": {"number": 21}} is half of it. So a test that runs after every change, and that fails
loudly before anything else does, is called a canary as well.
"""

LIMITS: Final[Mapping[str, tuple[float, float]]] = {"float32": (1e-3, 1e-4), "bfloat16": (0.1, 1e-2)}
"""By dtype, limits of the mean difference of log-probabilities in nats: the limit of a comparison without an earlier
one, and the smallest limit of later comparisons, whatever the first one measured."""
