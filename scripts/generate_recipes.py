"""Copy the configurations of other trainers from `docs/snippets` into the hub's package, whose site shows them.

    python scripts/generate_recipes.py            copy them
    python scripts/generate_recipes.py --check    exit with 1 when a copy is stale, writing nothing

The files in `docs/snippets` are the source: the documentation shows them and its tests run them. A wheel of Ludus holds
no documentation, so the package needs copies.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ludus.hub.site.recipes import SNIPPETS, stored_name

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "docs" / "snippets"
COPIES = ROOT / "server" / "ludus" / "hub" / "site" / "templates" / "recipes"


def main() -> int:
    """Copy or check every file; the exit code."""
    check = "--check" in sys.argv[1:]
    wanted = {stored_name(name): (SOURCES / name).read_bytes() for name in SNIPPETS}
    kept = {path.name: path.read_bytes() for path in COPIES.iterdir()}
    stale = sorted(name for name in wanted.keys() | kept.keys() if wanted.get(name) != kept.get(name))
    for name in stale:
        print(f"{'stale' if check else 'copied' if name in wanted else 'removed'}: {COPIES / name}")
        if check:
            continue
        if name in wanted:
            (COPIES / name).write_bytes(wanted[name])
        else:
            (COPIES / name).unlink()
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
