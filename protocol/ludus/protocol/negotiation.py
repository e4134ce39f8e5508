"""The extension's settings: the version that a server speaks, and the modules that it offers.

Clients ignore modules and settings that they do not know, so these types do, too.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from pydantic.json_schema import SkipJsonSchema

from ludus.protocol.identifiers import (
    CHANNEL_PATH,
    CHANNEL_SUBPROTOCOL,
    EXTENSION_VERSION,
    PLAY_PATH,
)
from ludus.protocol.model import WireModel
from ludus.protocol.modules import Module


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


_Absent: Final = Field(default=None, json_schema_extra=_without_default)
"""A field that is left out where it does not apply, and never null."""


class ModuleSettings(WireModel):
    """What a client needs to use a module; an empty object for most modules."""

    model_config = ConfigDict(extra="ignore")


class ChannelSettings(ModuleSettings):
    """What a client needs to use the module `channel`."""

    path: Annotated[str, Field(pattern="^/")]
    """The path of the channel on the same origin, with the prefix under which the server is published."""
    subprotocol: str
    """The WebSocket subprotocol that the channel speaks."""


class PlaySettings(ModuleSettings):
    """What a client needs to use the module `play`."""

    path: Annotated[str, Field(pattern=r"^/.*\{capability\}")]
    """The path of play endpoints on the same origin, likewise, with `{capability}` for the capability."""


class Modules(WireModel):
    """The modules that a server offers: a key for each, and an object as its value."""

    model_config = ConfigDict(extra="ignore")

    initialize: ModuleSettings | SkipJsonSchema[None] = _Absent
    start_tool: ModuleSettings | SkipJsonSchema[None] = _Absent
    play: PlaySettings | SkipJsonSchema[None] = _Absent
    tokens: ModuleSettings | SkipJsonSchema[None] = _Absent
    secrets: ModuleSettings | SkipJsonSchema[None] = _Absent
    channel: ChannelSettings | SkipJsonSchema[None] = _Absent
    ors: ModuleSettings | SkipJsonSchema[None] = _Absent
    limits: ModuleSettings | SkipJsonSchema[None] = _Absent
    sampling: ModuleSettings | SkipJsonSchema[None] = _Absent
    fork: ModuleSettings | SkipJsonSchema[None] = _Absent
    group_scoring: ModuleSettings | SkipJsonSchema[None] = _Absent
    turns: ModuleSettings | SkipJsonSchema[None] = _Absent
    noise: ModuleSettings | SkipJsonSchema[None] = _Absent
    seats: ModuleSettings | SkipJsonSchema[None] = _Absent
    worlds: ModuleSettings | SkipJsonSchema[None] = _Absent

    @model_serializer(mode="wrap")
    def _leave_out(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialize without the modules that the server does not offer: a module is an object, never null."""
        values: dict[str, Any] = serialize(self)
        return {name: value for name, value in values.items() if value is not None}

    @property
    def offered(self) -> frozenset[Module]:
        """Return the modules of this version that the server offers."""
        fields = type(self).model_fields
        return frozenset(Module(str(fields[name].alias)) for name in fields if getattr(self, name) is not None)


class Settings(WireModel):
    """The settings of the extension: what a server announces."""

    model_config = ConfigDict(extra="ignore")

    version: str
    """The version of the extension that the server speaks."""
    modules: Modules
    """The modules that the server offers."""

    @classmethod
    def of(cls, offered: frozenset[Module]) -> Settings:
        """Return the settings of a server of this version that offers some modules, with the usual paths."""
        known: dict[Module, ModuleSettings] = {
            Module.CHANNEL: ChannelSettings(path=CHANNEL_PATH, subprotocol=CHANNEL_SUBPROTOCOL),
            Module.PLAY: PlaySettings(path=PLAY_PATH),
        }
        modules = {module.value: known.get(module, ModuleSettings()) for module in Module if module in offered}
        return cls(version=EXTENSION_VERSION, modules=Modules.model_validate(modules))

    def under(self, prefix: str) -> Settings:
        """Return the settings with a prefix before each path."""
        moved = {
            name: settings.model_copy(update={"path": prefix + settings.path})
            for name in ("channel", "play")
            if (settings := getattr(self.modules, name)) is not None
        }
        return self.model_copy(update={"modules": self.modules.model_copy(update=moved)})

    def to_wire(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return self.model_dump(mode="json")
