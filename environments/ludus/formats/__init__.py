"""Hosting of environments that were written for other systems: `ludus serve gymnasium:FrozenLake-v1`.

Each module is a format, published in the entry-point group `ludus.formats`. Packages that cannot be installed next to
Ludus run in an interpreter of their own (`ludus.formats.hosting`), with an adapter next to them
(`ludus.formats.inside`).
"""
