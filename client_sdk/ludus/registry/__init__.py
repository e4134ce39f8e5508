"""The client side of the hub: publish packages of environments, find them, and install them verified.

project.py     ludus.toml, the wheel, the git commit
inspection.py  what the code says about its environments; `ludus validate`
publishing.py  from a folder to a signed upload
client.py      the hub's JSON API
keys.py        the publisher's own key, and the pinned keys of others
installing.py  verify a version and install it with pip or uv
lock.py        ludus.lock
"""

from __future__ import annotations

__all__: list[str] = []
