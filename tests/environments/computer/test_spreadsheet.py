"""LibreOffice in a sandbox, driven by an oracle in a spreadsheet."""

from __future__ import annotations

import io
import zipfile

import pytest
from spreadsheet import FILE, Spreadsheet, read_column

from ludus.client import RandomPolicy
from ludus.environments.computer import missing_for_office
from ludus.testing import play

needs_office = pytest.mark.skipif(missing_for_office() is not None, reason=str(missing_for_office()))


@needs_office
def test_the_oracle_earns_the_best_reward() -> None:
    with play(Spreadsheet) as sheet:
        assert sheet.oracle(index=0).reward == 1.0


@needs_office
@pytest.mark.suite("computer")
def test_numbers_without_formulas_and_unsaved_formulas_earn_nothing() -> None:
    with play(Spreadsheet) as sheet:
        episode = sheet.start(index=0)
        totals = [[quantity * price] for _, quantity, price in episode.task.rows]
        episode.write_cells(file=FILE, sheet="Sheet1", cell="D2", rows=totals)
        episode.save(file=FILE)
        episode.write_cells(file=FILE, sheet="Sheet1", cell="D2", rows=[["=B2*C2"]])
        episode.answer("Done.")
        assert episode.reward == 0.0


@needs_office
@pytest.mark.suite("computer")
def test_nothing_breaks_whatever_a_policy_does() -> None:
    with play(Spreadsheet) as sheet:
        assert [one.failure for one in sheet.rollout(RandomPolicy(), 3)] == [None] * 3


def test_an_archive_that_is_a_bomb_or_has_entities_is_not_read() -> None:
    for content in (b"<a>" + b" " * 100_000_000 + b"</a>", b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("content.xml", content)
        with pytest.raises(ValueError, match="too large"):
            read_column(data.getvalue(), 3)
