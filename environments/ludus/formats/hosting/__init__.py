"""Runs adapters of hosted packages, in an interpreter of their own or in this one, and makes environments of them."""

from ludus.formats.hosting.description import Description, HostedSplit, HostedTool
from ludus.formats.hosting.environment import HostedEnvironment, environments_of, host_environments
from ludus.formats.hosting.errors import HostedCodeError
from ludus.formats.hosting.remote import EpisodeSource, Session
from ludus.formats.hosting.settings import HostingSettings, ToolErrors, names_server

__all__ = [
    "Description",
    "EpisodeSource",
    "HostedCodeError",
    "HostedEnvironment",
    "HostedSplit",
    "HostedTool",
    "HostingSettings",
    "Session",
    "ToolErrors",
    "environments_of",
    "host_environments",
    "names_server",
]
