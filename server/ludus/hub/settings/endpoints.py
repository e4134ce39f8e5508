"""The settings of a hub's endpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ludus.hub.core.toml_settings import check_settings, read_toml
from ludus.server.runtime.limits import ServerLimits

MEGABYTE = 1024 * 1024
MOST = 36
"""The most processes of one endpoint; see `replicas.py`."""


class EndpointLimits(BaseModel):
    """What one endpoint may use, and how many there may be. Sizes are in bytes, times in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    running: int = Field(default=32, ge=1)
    """Endpoints that run at one time, each replica counted; beyond it, the one that was unused for longest is stopped,
    if any is unused."""
    running_of_owner: int = Field(default=8, ge=1)
    """The same, of one owner's packages."""
    starting: int = Field(default=4, ge=1)
    """Endpoints that start at one time; others wait."""
    memory: int = Field(default=1024 * MEGABYTE, ge=64 * MEGABYTE)
    """Memory of a process of an endpoint and of its sandboxes together."""
    most_memory: int = Field(default=2048 * MEGABYTE, ge=64 * MEGABYTE)
    """The most memory that a package may ask for in its manifest (`resources.memory_mb`)."""
    processes: int = Field(default=256, ge=16)
    """Processes and threads of an endpoint, those in its sandboxes included."""
    sandboxes: int = Field(default=64, ge=0)
    """Sandboxes of one process of an endpoint. They share its memory, disk and processes."""
    disk: int = Field(default=256 * MEGABYTE, ge=MEGABYTE)
    """Files that an endpoint writes, those in /tmp included. They lie in memory and end with its process."""
    most_disk: int = Field(default=1024 * MEGABYTE, ge=MEGABYTE)
    """The most disk that a package may ask for (`resources.disk_mb`)."""
    most_cpus: float = Field(default=4.0, gt=0)
    """The most CPUs that a package may ask for (`resources.cpus`). What it then uses is not limited."""
    file_size: int = Field(default=128 * MEGABYTE, ge=1024)
    """The largest file that an endpoint writes."""
    traffic: int = Field(default=4096 * MEGABYTE, ge=0)
    """Bytes to and from the network, for an endpoint that may reach it."""
    log_bytes: int = Field(default=256 * 1024, ge=1024)
    """The last bytes of an endpoint's output that are kept."""
    spans: int = Field(default=200, ge=0)
    """Spans in a second that a process of an endpoint may send to the hub's collector, if the hub has one. Those of ten
    seconds may come at once; what is more is dropped."""
    install_seconds: float = Field(default=300.0, gt=0)
    """How long the installation of one version may take."""
    install_bytes: int = Field(default=1024 * MEGABYTE, ge=MEGABYTE)
    """The size of a version's virtual environment; it lies in memory while it is made."""
    environments: int = Field(default=100, ge=1)
    """Virtual environments that are kept; beyond it, those unused for longest are removed, and none that is in use."""
    environments_bytes: int = Field(default=20_480 * MEGABYTE, ge=0)
    """The same, of all of them together."""
    installing: int = Field(default=2, ge=1)
    """Versions that are installed at one time; others wait."""
    start_seconds: float = Field(default=60.0, gt=0)
    """How long a request waits for an endpoint to start, without its installation."""
    server: ServerLimits = ServerLimits(max_episodes=1_000, max_queue=1_000, startup_seconds=60.0, threads=32)
    """The limits of the server of each endpoint."""


class EndpointSettings(BaseModel):
    """How a hub runs published environments."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    sandbox: str = "bubblewrap"
    """The sandbox in which endpoints are installed and run."""
    unsafe_own_packages: bool = False
    """Run packages without a sandbox, as the hub's own user, on a machine that has none. Only for a hub whose packages
    are all the operator's own: a package can then read everything that the hub can."""
    network: tuple[str, ...] = ()
    """The packages (`owner/name`) whose wish for a network is granted; `*` grants every wish."""
    index_hosts: tuple[str, ...] = ("pypi.org", "files.pythonhosted.org")
    """The hosts that an installation may reach."""
    index_url: str | None = None
    """The package index for dependencies, instead of the installer's own default; an empty text for none."""
    find_links: tuple[str, ...] = ()
    """Folders of this machine with wheels of dependencies, which are used before the index."""
    secrets: Mapping[str, Mapping[str, str]] = Field(default_factory=dict, repr=False)
    """The values of secrets by package (`owner/name`) and by name. A package gets those that its manifest names."""
    idle_seconds: float = Field(default=600.0, gt=0)
    """How long an endpoint without requests and running episodes goes on."""
    replicas: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=MOST)
    """The most processes of one endpoint. By default as many as there are cores, and at most 4."""
    grow_load: float = Field(default=32.0, gt=0)
    """A process is added while each has more than this many episodes, or episodes wait for a place; one is ended while
    the others would have at most half as many each."""
    grow_seconds: float = Field(default=2.0, ge=0)
    """How long that must be so before a process is added."""
    shrink_seconds: float = Field(default=60.0, ge=0)
    """How long that must be so before a process is ended, which then waits for its last episode."""
    spares: bool = True
    """Whether an endpoint with running episodes keeps one more process ready, which takes over when its own dies."""
    crashes: int = Field(default=4, ge=1)
    """How many times in turn a process may end soon after its start, before the endpoint is given up."""
    retry_seconds: float = Field(default=30.0, ge=0)
    """How long an endpoint that was given up answers with its error, before a request starts it again."""
    unresponsive_seconds: float = Field(default=10.0, gt=0)
    """How long a process may leave a health check unanswered before it is killed and replaced."""
    domain: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)*$")] = "localhost"
    """The domain below which each endpoint has a host name of its own, `NAME.OWNER.DOMAIN`."""
    limits: EndpointLimits = EndpointLimits()


def read_settings(path: Path | None) -> EndpointSettings:
    """Return the settings in a TOML file, or the defaults.

    Args:
        path: the file; None for the defaults.

    Raises:
        AuthoringError: the file cannot be read, or a setting does not exist or has a wrong value.
    """
    if path is None:
        return EndpointSettings()
    return check_settings(EndpointSettings, read_toml(path, "the settings of endpoints"), path)
