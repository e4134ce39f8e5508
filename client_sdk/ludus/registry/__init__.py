"""The client side of the hub: publish packages of environments, find them, and install them verified.

    project.py     ludus.toml, the wheel, the git commit
    inspection.py  what the code says about its environments; `ludus validate`
    publishing.py  from a folder to a signed upload
    client.py      the hub's JSON API; organizations.py: organizations and their members
    keys.py        the publisher's own key, and the pinned keys of others
    installing.py  verify a version and install it with pip or uv
    resolving.py   what packages need from a package index, for the lock; install a lock
    lock.py        ludus.lock
    results.py     results of runs; submission.py: an evaluation as an upload, played_runs.py: runs that the hub scores
    types/         the messages of the hub's API; commands/: the commands for hubs

Searching needs the base install only; signatures need the extra `registry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ludus.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from ludus.registry.client import RegistryClient
    from ludus.registry.installing import Verified, install, verify
    from ludus.registry.keys import Pins
    from ludus.registry.lock import Lock, LockedDependency, LockedPackage, read_lock, write_lock
    from ludus.registry.publishing import Prepared, prepare
    from ludus.registry.resolving import AmbiguousName, install_lock, resolve

__all__ = [
    "AmbiguousName",
    "Lock",
    "LockedDependency",
    "LockedPackage",
    "Pins",
    "Prepared",
    "RegistryClient",
    "Verified",
    "install",
    "install_lock",
    "prepare",
    "read_lock",
    "resolve",
    "verify",
    "write_lock",
]

_MODULES: Final = {
    "ludus.registry.client": "RegistryClient",
    "ludus.registry.installing": "Verified install verify",
    "ludus.registry.keys": "Pins",
    "ludus.registry.lock": "Lock LockedDependency LockedPackage read_lock write_lock",
    "ludus.registry.publishing": "Prepared prepare",
    "ludus.registry.resolving": "AmbiguousName install_lock resolve",
}
"""The modules that define the public names, which are imported at first use."""

__getattr__ = lazy_names(globals(), _MODULES)
