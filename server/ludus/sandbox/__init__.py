"""Sandboxes for untrusted code: `model` defines their interface, and `leases` gives them to episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.common.lazy_names import lazy_names
from ludus.sandbox.cassettes.settings import Cassette
from ludus.sandbox.endings import LIMIT_NAMES, LimitName
from ludus.sandbox.errors import (
    CassetteError,
    CassetteMiss,
    SandboxFailed,
    SandboxFileError,
    SandboxImageError,
    SandboxInputClosed,
    SandboxLimitReached,
    SandboxPortClosed,
    SandboxUnavailable,
    SandboxUnsupported,
)
from ludus.sandbox.leases import EpisodeSandboxes, Sandboxes, VerifierPlace
from ludus.sandbox.model import (
    FileInfo,
    ImageProvider,
    Limits,
    NetworkUse,
    PullPolicy,
    RunResult,
    Sandbox,
    SandboxProvider,
    SandboxSettings,
    Snapshot,
)
from ludus.sandbox.processes import OutputStream, Process, ProcessEnd
from ludus.sandbox.registry import find_provider

if TYPE_CHECKING:
    from ludus.sandbox.ports import Port, PortResponse

__all__ = [
    "LIMIT_NAMES",
    "Cassette",
    "CassetteError",
    "CassetteMiss",
    "EpisodeSandboxes",
    "FileInfo",
    "ImageProvider",
    "LimitName",
    "Limits",
    "NetworkUse",
    "OutputStream",
    "Port",
    "PortResponse",
    "Process",
    "ProcessEnd",
    "PullPolicy",
    "RunResult",
    "Sandbox",
    "SandboxFailed",
    "SandboxFileError",
    "SandboxInputClosed",
    "SandboxLimitReached",
    "SandboxPortClosed",
    "SandboxImageError",
    "SandboxProvider",
    "SandboxSettings",
    "SandboxUnavailable",
    "SandboxUnsupported",
    "Sandboxes",
    "Snapshot",
    "VerifierPlace",
    "find_provider",
]

__getattr__ = lazy_names(globals(), {"ludus.sandbox.ports": "Port PortResponse"})
