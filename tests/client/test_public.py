"""What the package offers by name, and what it costs to import."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ludus.client
from ludus.client import _MODULES, client, environment, episode, sync

HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def test_every_public_name_is_there_and_has_a_home() -> None:
    assert sorted(ludus.client.__all__) == ludus.client.__all__ == dir(ludus.client)
    assert set(HOMES) == set(ludus.client.__all__)
    for name in ludus.client.__all__:
        value = getattr(ludus.client, name)
        assert value is not None
        assert not inspect.ismodule(value)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        ludus.client.nonsense  # noqa: B018


def test_the_type_checkers_see_what_is_imported_lazily() -> None:
    source = Path(ludus.client.__file__).read_text("utf-8")
    block = source[source.index("if TYPE_CHECKING:") : source.index("__all__")]
    for name, home in HOMES.items():
        assert f"from {home} import" in block, home
        assert name in block, name


@pytest.mark.parametrize("module", ["pydantic", "aiohttp", "asyncio", "httpx", "rich", "fastapi", "mcp"])
def test_importing_the_client_imports_nothing_heavy(module: str) -> None:
    program = f"import sys, ludus.client; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0


@pytest.mark.parametrize(
    "pair",
    [
        (client.Client, sync.Client),
        (environment.RemoteEnvironment, sync.RemoteEnvironment),
        (episode.Episode, sync.Episode),
        (episode.Group, sync.Group),
    ],
    ids=lambda pair: pair[0].__name__,
)
def test_both_clients_offer_the_same(pair: tuple[type, type]) -> None:
    methods, blocking_methods = ({name for name in vars(one) if not name.startswith("_")} for one in pair)
    attributes, blocking_attributes = (set(re.findall(r"self\.(\w+): Final", inspect.getsource(one))) for one in pair)
    assert methods == blocking_methods
    assert attributes == blocking_attributes
    assert attributes
