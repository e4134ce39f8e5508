"""Run the tests of all adapters against the systems of others, and write the table of docs/integrations.md from them.

    python scripts/integrations.py           run all, then rewrite the table
    python scripts/integrations.py -k trl    run some of them, then rewrite their rows

A row exists only if its test passed: tests write rows with their fixture `record`.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import installer

PAGE: Final = installer.ROOT / "docs" / "integrations.md"
ROWS: Final = installer.ROOT / "benchmarks" / "integrations.json"
BEGIN, END = "<!-- begin: rows -->", "<!-- end: rows -->"
COLUMNS: Final = {
    "name": "system",
    "version": "version",
    "ran": "what the test runs",
    "unscored": "an unscored episode",
    "traps": "traps of the system",
    "date": "passed on",
}


def main() -> None:
    """Run the tests, and exit as pytest does."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {"LUDUS_SUITES": "integrations", "LUDUS_INTEGRATION_RECORDS": folder}
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "--durations=0", "--durations-min=5"]
        ran = subprocess.run(
            [*command, "tests/integrations", *sys.argv[1:]],
            cwd=installer.ROOT,
            env={**os.environ, **variables},
            check=False,
        )
        rows: dict[str, dict[str, Any]] = json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else {}
        for path in sorted(Path(folder).glob("*.json")):
            found = json.loads(path.read_text(encoding="utf-8"))
            rows[path.stem] = {**found, "date": datetime.date.today().isoformat()}
    ROWS.write_text(json.dumps(rows, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    sys.exit(ran.returncode)


def with_table(page: str, rows: dict[str, dict[str, Any]]) -> str:
    """Return the page with its table replaced by one of these rows."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    lines = [f"| {' | '.join(COLUMNS.values())} |", f"|{'---|' * len(COLUMNS)}"]
    for _, row in sorted(rows.items(), key=lambda pair: str(pair[1]["name"]).lower()):
        cells = (str(row.get(column, "")).replace("|", "\\|") for column in COLUMNS)
        lines.append(f"| {' | '.join(cells)} |")
    return f"{before}{BEGIN}\n{chr(10).join(lines)}\n{END}{after}"


if __name__ == "__main__":
    main()
