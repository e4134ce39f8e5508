"""Edit a workbook to a goal, with formulas that hold for other data."""

from ludus.environments.spreadsheet.environment import Spreadsheet
from ludus.environments.spreadsheet.tasks import SpreadsheetTask

__all__ = ["Spreadsheet", "SpreadsheetTask"]
