"""The settings of the extension, as servers announce them and clients read them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ludus.protocol import METHODS
from ludus.protocol.modules import METHOD_MODULES, Module
from ludus.protocol.negotiation import Modules, Settings

EVERYTHING = frozenset(Module)


def test_every_module_that_is_defined_has_settings() -> None:
    assert {field.alias for field in Modules.model_fields.values()} == {module.value for module in EVERYTHING}
    settings = Settings.of(EVERYTHING)
    assert settings.modules.offered == EVERYTHING
    assert Settings.model_validate(settings.to_wire()) == settings


def test_a_module_that_is_not_offered_is_left_out() -> None:
    assert Settings.of(frozenset()).to_wire() == {"version": "0.2", "modules": {}}
    assert Settings.of(frozenset({Module.GROUP_SCORING, Module.PLAY})).to_wire() == {
        "version": "0.2",
        "modules": {"play": {"path": "/play/{capability}/mcp"}, "groupScoring": {}},
    }


def test_paths_get_the_prefix_under_which_the_server_is_published() -> None:
    moved = Settings.of(EVERYTHING).under("/rl").to_wire()["modules"]
    assert (moved["channel"]["path"], moved["play"]["path"]) == ("/rl/channel", "/rl/play/{capability}/mcp")
    assert Settings.of(frozenset({Module.FORK})).under("/rl") == Settings.of(frozenset({Module.FORK}))


@pytest.mark.requirement("NEG-4")
def test_modules_and_settings_that_are_not_known_are_ignored() -> None:
    later = {"version": "0.2", "modules": {"weather": {"x": 1}, "fork": {"depth": 3}}, "motto": "x"}
    assert Settings.model_validate(later).modules.offered == {Module.FORK}


@pytest.mark.parametrize(
    "modules",
    [
        None, [], {"fork": True}, {"channel": {}}, {"channel": {"path": "/channel"}}, {"play": {"path": "/play"}},
        {"channel": {"path": "channel", "subprotocol": "x"}},
    ],
)  # fmt: skip
def test_settings_that_lack_what_a_module_needs_are_refused(modules: Any) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({"version": "0.2", "modules": modules})


def test_a_method_knows_its_module() -> None:
    found = {name.removeprefix("dev.ludus/"): method.module for name, method in METHODS.items()}
    assert {name: module for name, module in found.items() if module is not None} == METHOD_MODULES
