"""What `ludus.server.rewards` offers: every name is there, and importing the server imports none of the checks."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from typing import Literal, get_origin

import pytest

import ludus.server
from ludus.server import rewards


@pytest.mark.parametrize("name", rewards.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert name in dir(rewards)
    assert getattr(rewards, name).__doc__


def test_no_public_name_is_also_a_module_which_an_import_of_it_would_put_in_its_place() -> None:
    packages = [package for package in (rewards, ludus.server) if package.__path__]
    modules = {
        (package.__name__, module.name) for package in packages for module in pkgutil.iter_modules(package.__path__)
    }
    public = {(package.__name__, name) for package in packages for name in package.__all__}
    assert modules & public == set()


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        rewards.Nothing  # noqa: B018


def test_the_server_starts_without_importing_unused_checks() -> None:
    program = "import sys, ludus.server; print([m for m in sys.modules if m.startswith('ludus.server.rewards.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    for unused in ("judges", "mathematics", "state", "checklist", "tournament", "units"):
        assert f"'ludus.server.rewards.{unused}'" not in done.stdout


def test_authors_import_everything_from_the_server() -> None:
    assert set(rewards.__all__) <= set(ludus.server.__all__)
    for name in ludus.server.__all__:
        assert name in dir(ludus.server)
        value = getattr(ludus.server, name)
        assert value.__doc__ or get_origin(value) is Literal
