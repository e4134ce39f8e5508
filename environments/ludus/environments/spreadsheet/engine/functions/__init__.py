"""The functions that formulas may use. Importing this package registers all of them."""

from ludus.environments.spreadsheet.engine.functions import conditions, dates, lookups, mathematics, texts
from ludus.environments.spreadsheet.engine.registry import FUNCTIONS

__all__ = ["FUNCTIONS", "conditions", "dates", "lookups", "mathematics", "texts"]
