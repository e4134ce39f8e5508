"""The memory and disk that a release gets: what its manifest asks for, up to the operator's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ludus.hub.endpoints.errors import EndpointRefused
from ludus.hub.settings.endpoints import MEGABYTE

if TYPE_CHECKING:
    from ludus.hub.endpoints.releases import Release
    from ludus.hub.settings.endpoints import EndpointLimits


class Granted(NamedTuple):
    """What a release gets, in bytes."""

    memory: int
    disk: int


def grant(release: Release, limits: EndpointLimits) -> Granted:
    """Return what a release gets: what every endpoint has, or what it asks for if that is more.

    Raises:
        EndpointRefused: it asks for more than this hub gives to one endpoint; the message names the setting.
    """
    asked = release.resources
    memory, disk = (asked.memory_mb or 0) * MEGABYTE, (asked.disk_mb or 0) * MEGABYTE
    for what, wanted, most, unit in (
        ("memory", memory, limits.most_memory, "bytes of memory"),
        ("disk", disk, limits.most_disk, "bytes of disk"),
        ("cpus", asked.cpus or 0, limits.most_cpus, "CPUs"),
        ("gpus", asked.gpus or 0, 0, "GPUs"),
    ):
        if wanted > most:
            advice = f"; the operator can raise `most_{what}`" if what != "gpus" else ", because its sandbox has none"
            raise EndpointRefused(
                f"{release.title} asks for {wanted:,} {unit}, and this hub gives an endpoint at most {most:,}{advice}"
            )
    return Granted(max(memory, limits.memory), max(disk, limits.disk))
