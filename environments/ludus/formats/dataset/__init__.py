"""`dataset:PATH`: rows of JSON Lines, CSV, Parquet and Hugging Face's saved datasets as tasks with one message each.

`tables` and `columnar` read files one row at a time, `layout` finds files and splits, `columns` finds what the columns
hold, `tasks` makes tasks of rows, `graders` scores messages, and `load` puts them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ludus.server import Environment
    from ludus.server.tasks.formats import FormatSource


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment of a file or folder.

    Raises:
        EnvironmentNotFound: there is no such file or folder.
        AuthoringError: a package is missing, or the files, a row or an option cannot be used.
    """
    from ludus.formats.dataset.load import load_dataset
    from ludus.formats.dataset.settings import DatasetSettings

    return [load_dataset(source.target, source.settings(DatasetSettings))]
