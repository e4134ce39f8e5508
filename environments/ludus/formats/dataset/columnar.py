"""Tables of Parquet files and of Arrow files as Hugging Face's datasets save them; they need pyarrow."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from ludus.common.distribution import DISTRIBUTION
from ludus.formats.dataset.tables import Row, Table
from ludus.protocol.errors import AuthoringError

BATCH_BYTES: Final = 4 * 1024 * 1024
"""The size of the parts in which a Parquet file is decoded."""
_BATCH_ROWS: Final = 1024
_BUFFER: Final = 1024 * 1024


class ColumnarTable(Table):
    """A file of typed columns."""

    def __init__(self, path: Path, shown: str) -> None:
        super().__init__(path, shown)
        self._selected: list[str] | None = None
        self._pa = _pyarrow(shown, self.kind)

    def select(self, columns: Sequence[str]) -> None:
        """Read only these columns from now on."""
        self._selected = [name for name in self.columns if name in columns]

    def _place(self, index: int) -> str:
        return f"{self.shown}, row {index + 1}"


class ParquetTable(ColumnarTable):
    """A Parquet file. Its row groups are decoded in parts, the last of which is kept."""

    kind = "Parquet"

    def __init__(self, path: Path, shown: str) -> None:
        super().__init__(path, shown)
        from pyarrow import parquet

        try:
            self._file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER)
        except (OSError, self._pa.ArrowException) as error:
            raise AuthoringError(f"{shown} cannot be read as Parquet: {error}") from None
        metadata = self._file.metadata
        sizes = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        self._begins = [0, *accumulate(group.num_rows for group in sizes)]
        self._steps = [_rows_at_once(group.num_rows, group.total_byte_size) for group in sizes]
        self.count = metadata.num_rows
        self._lock = threading.Lock()
        self._group, self._at, self._after = -1, 0, 0
        """The row group that is being decoded, and the rows of the part that was decoded last."""
        self._batches: Iterator[Any] = iter(())
        self._batch: Any = None

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns."""
        return tuple(self._file.schema_arrow.names)

    def scan(self) -> Iterator[Row]:
        """Yield all rows in order."""
        index = 0
        for group in range(len(self._steps)):
            for batch in self._read(group):
                for values in batch.to_pylist():
                    yield Row(values, self._place(index))
                    index += 1

    def row(self, index: int) -> Row:
        """Return one row."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        group = bisect_right(self._begins, index) - 1
        with self._lock:
            values: Any = self._values(group, index - self._begins[group])
        return Row(values, self._place(index))

    def _values(self, group: int, offset: int) -> Any:
        """Return a row of a row group. Decoding goes on from the last part, or starts again if that is further on."""
        if group != self._group or offset < self._at:
            self._group, self._at, self._after, self._batches = group, 0, 0, self._read(group)
        while self._after <= offset:
            batch = next(self._batches, None)
            if batch is None:
                self._group = -1
                raise AuthoringError(f"{self.shown} has changed since it was read; start the server again")
            self._batch = batch
            self._at, self._after = self._after, self._after + self._batch.num_rows
        return self._batch.slice(offset - self._at, 1).to_pylist()[0]

    def _read(self, group: int) -> Iterator[Any]:
        """Yield a row group in parts."""
        step = self._steps[group]
        try:
            yield from self._file.iter_batches(
                batch_size=step, row_groups=[group], columns=self._selected, use_threads=False
            )
        except (OSError, self._pa.ArrowException) as error:
            raise AuthoringError(f"{self.shown} cannot be read: {error}") from None


class ArrowTable(ColumnarTable):
    """An Arrow file in the stream format, mapped into memory."""

    kind = "Arrow"

    def __init__(self, path: Path, shown: str) -> None:
        super().__init__(path, shown)
        try:
            with self._pa.ipc.open_stream(self._pa.memory_map(str(path))) as reader:
                self._schema = reader.schema
                self._batches = list(reader)
        except (OSError, self._pa.ArrowException) as error:
            raise AuthoringError(f"{shown} cannot be read as an Arrow stream: {error}") from None
        self._begins = [0, *accumulate(batch.num_rows for batch in self._batches)]
        self.count = self._begins[-1]

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns."""
        return tuple(self._schema.names)

    def scan(self) -> Iterator[Row]:
        """Yield all rows in order."""
        for index in range(self.count):
            yield self.row(index)

    def row(self, index: int) -> Row:
        """Return one row."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        number = bisect_right(self._begins, index) - 1
        batch = self._batches[number]
        if self._selected is not None:
            batch = batch.select(self._selected)
        return Row(batch.slice(index - self._begins[number], 1).to_pylist()[0], self._place(index))


def _rows_at_once(rows: int, size: int) -> int:
    """Return how many rows of a row group to decode at once."""
    return max(1, min(_BATCH_ROWS, rows * BATCH_BYTES // max(size, 1)))


def _pyarrow(shown: str, kind: str) -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError:
        article = "an" if kind == "Arrow" else "a"
        raise AuthoringError(
            f"{shown} is {article} {kind} file, which needs the package pyarrow; install it with: "
            f"pip install '{DISTRIBUTION}[datasets]'"
        ) from None
    return pyarrow
