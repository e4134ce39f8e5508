"""The name and version under which Ludus is installed.

The distribution is `ludus-rl`, because `ludus` on the public index is another project. The import namespace `ludus`
has no `__init__.py` (PEP 420), so there is no `ludus.__version__`: this module and `ludus --version` answer instead.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DISTRIBUTION", "installed_version", "missing_extra"]


DISTRIBUTION: Final = "ludus-rl"
"""What pip installs."""


def installed_version() -> str:
    """Return the installed version of Ludus, "0" where it runs from a folder that was never installed."""
    from importlib.metadata import PackageNotFoundError, version  # 20 ms that `import ludus.client` need not pay

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0"


def missing_extra(error: ModuleNotFoundError, extra: str) -> ModuleNotFoundError:
    """Return an import error that names the pip command for `extra`, where a package that it brings is missing."""
    if error.name is None or error.name.partition(".")[0] == "ludus":
        return error
    return ModuleNotFoundError(f"{error.msg}; install it with: pip install '{DISTRIBUTION}[{extra}]'", name=error.name)


def install_source() -> str | None:
    """Return the checkout or wheel that Ludus was installed from; None for an index, or where that is not known."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        record = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    address = urlsplit(json.loads(record)["url"]) if record else None  # PEP 610
    return url2pathname(address.path) if address is not None and address.scheme == "file" else None
