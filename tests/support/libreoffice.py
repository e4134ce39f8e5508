"""Lets LibreOffice recalculate workbooks, many with one start."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook

NEEDS_LIBREOFFICE = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")


def recalculated(files: Sequence[bytes], folder: Path, seconds: float = 500) -> list[Any]:
    """Return files as openpyxl reads them with the values that LibreOffice calculates."""
    names = [f"book{number}.xlsx" for number in range(len(files))]
    for name, data in zip(names, files, strict=True):
        (folder / name).write_bytes(data)
    subprocess.run(
        [
            "soffice", f"-env:UserInstallation=file://{folder}/profile", "--headless", "--convert-to", "xlsx",
            "--outdir", str(folder / "out"), *(str(folder / name) for name in names),
        ],
        check=True, capture_output=True, timeout=seconds,
    )  # fmt: skip
    return [load_workbook(io.BytesIO((folder / "out" / name).read_bytes()), data_only=True) for name in names]
