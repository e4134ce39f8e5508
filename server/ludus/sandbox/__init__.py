"""Sandboxes for untrusted code: `model` defines their interface, and `leases` gives them to episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.common.lazy_names import lazy_names
from ludus.sandbox.core.cassette_settings import Cassette
from ludus.sandbox.core.endings import LIMIT_NAMES, LimitName
from ludus.sandbox.core.errors import (
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
from ludus.sandbox.core.model import (
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
from ludus.sandbox.core.processes import OutputStream, Process, ProcessEnd
from ludus.sandbox.core.registry import find_provider
from ludus.sandbox.leases import EpisodeSandboxes, Sandboxes, VerifierPlace

if TYPE_CHECKING:
    from ludus.sandbox.core.ports import Port, PortResponse

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

__getattr__ = lazy_names(globals(), {"ludus.sandbox.core.ports": "Port PortResponse"})
