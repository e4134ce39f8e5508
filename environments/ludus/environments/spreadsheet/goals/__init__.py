"""The goals of tasks. Importing this package registers all kinds of them."""

from ludus.environments.spreadsheet.goals import columns, edits, features, repairs, sheets, summaries
from ludus.environments.spreadsheet.goals.goal import KINDS

__all__ = ["KINDS", "columns", "edits", "features", "repairs", "sheets", "summaries"]
