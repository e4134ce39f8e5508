"""How Chromium is started in an episode's sandbox, and what this machine must have for it.

Chromium is driven over its DevTools pipe, not by Playwright. Measured on two shared cores: Chromium answers 0.4 s after
its start, and has 350 MiB; Playwright 1.65 takes 1.6 s for its driver before that, and 136 MiB more per episode, for
Node (117) and Python (19). The tools have the names and forms of Playwright's MCP server.

The sandbox has no network. Chromium needs sockets within it, so it has a loopback, on which nothing listens. The sites
are answered by the environment's process: the driver intercepts each request of the browser, so that no program, file
or database of the sites is in the sandbox.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ludus.environments.computer.browser import chromium_program
from ludus.sandbox import Limits, SandboxSettings

_MIB: Final = 2**20
_FLAGS: Final = (
    # Chromium's own sandbox needs user namespaces, which the system-call filter refuses. The sandbox around the whole
    # browser takes its place.
    "--headless", "--no-sandbox", "--no-zygote", "--remote-debugging-pipe", "--user-data-dir=/tmp/profile",
    "--window-size=1024,768", "--hide-scrollbars", "--lang=en-US", "--force-color-profile=srgb",
    "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server", "--disable-extensions", "--disable-breakpad",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-sync",
    "--no-first-run", "--no-default-browser-check", "--mute-audio", "--renderer-process-limit=1",
    "--js-flags=--max-old-space-size=128", "--disable-blink-features=AutomationControlled",
    "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding", "--disable-hang-monitor",
    "--disable-features=Vulkan,Translate,OptimizationHints,MediaRouter,SpareRendererForSitePerProcess,"
    "BackForwardCache,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,AutofillServerCommunication,WebRtcHideLocalIpsWithMdns",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "about:blank",
)  # fmt: skip
_PIPES: Final = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
"""The DevTools pipe is descriptors 3 and 4: here they are standard input and output of the sandbox's process."""
_LIMITS: Final = Limits(
    memory=1536 * _MIB, processes=256, disk=256 * _MIB, file_size=128 * _MIB, spawned=4, spawned_cpu_seconds=1800.0,
    spawned_output=256 * _MIB, seconds=30.0,
)  # fmt: skip
_POLICIES: Final = ("/etc/chromium/policies/managed", "/etc/opt/chrome/policies/managed")
WARM: Final = 2
"""The browsers that are kept ready."""


def missing_chromium() -> str | None:
    """Return what this machine lacks, and how to install it; None if nothing is missing."""
    return None if chromium_program() else "Chromium is not installed (apt-get install chromium)"


def chromium_command() -> tuple[str, ...]:
    """Return the command that starts Chromium with its DevTools pipe on standard input and output; empty without it."""
    program = chromium_program()
    return ("sh", "-c", _PIPES, program, *_FLAGS) if program else ()


def chromium_settings() -> SandboxSettings:
    """Return the settings of a sandbox in which Chromium is started; none is kept ready where it is not installed."""
    shown = [(str(Path(__file__).parent / "policies"), place) for place in _POLICIES]
    if Path("/etc/fonts").exists():
        shown.append(("/etc/fonts", "/etc/fonts"))
    command = chromium_command()
    return SandboxSettings(
        limits=_LIMITS, loopback=True, readonly=tuple(shown), warm=WARM if command else 0, background=command,
        env=(("TZ", "UTC"),),
    )  # fmt: skip
