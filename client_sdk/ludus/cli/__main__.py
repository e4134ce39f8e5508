"""`python -m ludus.cli`."""

from __future__ import annotations

from ludus.cli.app import main

main()
