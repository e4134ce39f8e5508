"""What the negotiations are about, in words."""

from __future__ import annotations

from typing import Final

from ludus.environments.negotiation.scenario import Issue

ITEMS: Final = (
    ("books", "hats", "balls", "lamps", "chairs"),
    ("food", "water", "firewood", "blankets", "tents"),
    ("apples", "eggs", "loaves", "cheeses", "melons"),
    ("paintings", "clocks", "vases", "carpets", "mirrors"),
    ("desks", "screens", "phones", "printers", "shelves"),
    ("bricks", "beams", "tiles", "windows", "doors"),
)
"""Kinds of items that are divided."""

CONTRACTS: Final = (
    (
        Issue("salary", ("60k", "65k", "70k", "75k")),
        Issue("vacation", ("20 days", "24 days", "28 days", "32 days")),
        Issue("remote", ("1 day", "2 days", "3 days", "4 days")),
        Issue("start", ("March", "April", "May", "June")),
        Issue("bonus", ("0%", "5%", "10%", "15%")),
    ),
    (
        Issue("rate", ("90", "95", "100", "105")),
        Issue("delivery", ("2 weeks", "4 weeks", "6 weeks", "8 weeks")),
        Issue("warranty", ("6 months", "12 months", "18 months", "24 months")),
        Issue("payment", ("15 days", "30 days", "45 days", "60 days")),
        Issue("packaging", ("plain", "padded", "crates", "pallets")),
    ),
    (
        Issue("rent", ("900", "950", "1000", "1050")),
        Issue("term", ("1 year", "2 years", "3 years", "4 years")),
        Issue("deposit", ("1 month", "2 months", "3 months", "4 months")),
        Issue("furniture", ("none", "kitchen", "bedroom", "all")),
        Issue("parking", ("street", "yard", "garage", "cellar")),
    ),
    (
        Issue("budget", ("40k", "45k", "50k", "55k")),
        Issue("deadline", ("June", "July", "August", "September")),
        Issue("team", ("2 people", "3 people", "4 people", "5 people")),
        Issue("reports", ("weekly", "biweekly", "monthly", "quarterly")),
        Issue("support", ("3 months", "6 months", "9 months", "12 months")),
    ),
)
"""Issues of contracts."""

GOODS: Final = (
    "a used bicycle", "an old piano", "a sailing dinghy", "a box of rare stamps", "a workbench", "a film camera",
    "a market stall", "a hundred roof tiles", "a garden shed", "a telescope",
)  # fmt: skip
"""What is sold."""
