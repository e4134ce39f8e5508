"""`python -m ludus.cli`."""

from __future__ import annotations

from ludus.cli import main

main()
