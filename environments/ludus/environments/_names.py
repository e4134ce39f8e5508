"""Names of invented people."""

from __future__ import annotations

from typing import Final

FIRST_NAMES: Final = (
    "Alex", "Amara", "Anna", "Ben", "Bianca", "Carlos", "Chloe", "Daniel", "Diana", "Elena", "Emil", "Farid", "Fiona",
    "George", "Grace", "Hana", "Hugo", "Ines", "Ivan", "Jonas", "Julia", "Karim", "Kate", "Lara", "Leo", "Lucia",
    "Marco", "Maria", "Mia", "Nina", "Noah", "Olga", "Oscar", "Paula", "Peter", "Rosa", "Sam", "Sara", "Tom", "Vera",
)  # fmt: skip
LAST_NAMES: Final = (
    "Adler", "Almeida", "Baker", "Bauer", "Berg", "Brandt", "Castro", "Chen", "Costa", "Dahl", "Diaz", "Dubois",
    "Evans", "Falk", "Ferrari", "Fischer", "Fuchs", "Garcia", "Gupta", "Haas", "Hansen", "Hoffmann", "Ibrahim",
    "Jensen", "Keller", "Khan", "Klein", "Kovac", "Kumar", "Lang", "Larsen", "Lopez", "Maier", "Martin", "Mendes",
    "Meyer", "Moreau", "Nguyen", "Novak", "Okafor", "Olsen", "Patel", "Petrov", "Quinn", "Reyes", "Ricci", "Rossi",
    "Sato", "Schmidt", "Silva", "Singh", "Sommer", "Stein", "Tanaka", "Torres", "Vogel", "Wagner", "Weber", "Wolf",
    "Young",
)  # fmt: skip
