"""`python -m ludus.client.cli`."""

from __future__ import annotations

from ludus.client.cli import main

main()
