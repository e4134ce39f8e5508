"""Plays exported tasks with Harbor's own runner: requests on stdin, outcomes on stdout, as in `harbor_golden`.

Containers are folders of this machine here, too, but they have its network. The container that a task has next to the
agent's runs as a process with an address of its own on the loopback interface, and the name of its service leads
there. What its compose file says is done as `docker compose` does it, as far as exported tasks use it; anything else
in such a file is an error.

A request may have `env`: variables of the machine that runs Harbor.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor_golden import SYSTEM, BwrapEnvironment, play

VARIABLE = re.compile(r"\$\{(\w+):([-?])([^}]*)\}")


def interpolated(text):
    def value(found):
        name, kind, rest = found.groups()
        if given := os.environ.get(name):
            return given
        assert kind == "-", f"{name}: {rest}"
        return rest

    return VARIABLE.sub(value, text)


class ComposeEnvironment(BwrapEnvironment):
    """The agent's container with the network of this machine, and perhaps a container next to it."""

    isolation = ("--unshare-ipc", "--unshare-pid", "--unshare-uts")
    started = 0
    sidecar = sidecar_root = None

    @property
    def capabilities(self):
        return EnvironmentCapabilities(disable_internet=True, docker_compose=True)

    async def start(self, force_build):
        await super().start(force_build)
        ComposeEnvironment.started += 1
        number = os.getpid() * 100 + ComposeEnvironment.started
        self.address = f"127.{1 + number // 62500 % 250}.{1 + number // 250 % 250}.{1 + number % 250}"
        hosts = f"127.0.0.1 localhost\n{self.address} ludus\n"
        self.place("/etc").mkdir(exist_ok=True)
        (self.place("/etc") / "hosts").write_text(hosts)
        compose = self.environment_dir / "docker-compose.yaml"
        if compose.exists():
            services = yaml.safe_load(compose.read_text())["services"]
            assert services.pop("main") == {"depends_on": {"ludus": {"condition": "service_healthy"}}}
            ((name, service),) = services.items()
            assert name == "ludus"
            assert set(service) == {"build", "environment", "healthcheck"}
            await self.run_sidecar(service)

    async def run_sidecar(self, service):
        context = self.environment_dir / service["build"]["context"]
        self.sidecar_root = Path(tempfile.mkdtemp(prefix="harbor-sidecar-"))
        for name in ("ludus", "opt", "etc"):
            (self.sidecar_root / name).mkdir()
        shutil.copy(self.place("/etc/hosts"), self.sidecar_root / "etc/hosts")
        copy, command = re.findall(r"^(?:COPY|CMD) (.*)$", (context / "Dockerfile").read_text(), re.M)
        assert copy == ". /opt/ludus/"
        shutil.copytree(context, self.sidecar_root / "opt/ludus")
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LUDUS_BIND": self.address}
        variables |= {name: interpolated(text) for name, text in service["environment"].items()}
        bwrap = ["bwrap", *SYSTEM, *self.isolation, "--die-with-parent"]
        for name in ("ludus", "opt", "etc"):
            bwrap += ["--bind", str(self.sidecar_root / name), f"/{name}"]
        self.sidecar = await asyncio.create_subprocess_exec(
            *bwrap, *json.loads(command), env=variables, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        check = service["healthcheck"]
        assert check["test"][0] == "CMD"
        for _ in range(check["retries"]):
            process = await asyncio.create_subprocess_exec(
                *bwrap, *check["test"][1:], env=variables, stderr=subprocess.DEVNULL
            )
            if await asyncio.wait_for(process.wait(), 10) == 0:
                return
            if self.sidecar.returncode is not None:
                raise RuntimeError("dependency failed to start: container ludus exited")
            await asyncio.sleep(float(check["interval"].removesuffix("s")))
        raise RuntimeError("dependency failed to start: container ludus is unhealthy")

    async def stop_service(self, service):
        assert service == "main"  # its processes have ended with their commands

    async def service_exec(self, command, *, service=None, **options):
        if self.is_main_service(service):
            return await super().service_exec(command, service=service, **options)
        raise NotImplementedError(command)

    async def service_is_dir(self, path, *, service=None, user=None):
        if self.is_main_service(service):
            return await super().service_is_dir(path, service=service, user=user)
        return (self.sidecar_root / path.lstrip("/")).is_dir()

    async def service_download_file(self, source_path, target_path, *, service=None):
        root = self.root if self.is_main_service(service) else self.sidecar_root
        shutil.copy(root / source_path.lstrip("/"), target_path)

    async def stop(self, delete):
        if self.sidecar is not None and self.sidecar.returncode is None:
            os.killpg(self.sidecar.pid, signal.SIGKILL)
            await self.sidecar.wait()
        if self.sidecar_root is not None:
            shutil.rmtree(self.sidecar_root, ignore_errors=True)
        await super().stop(delete)


async def main():
    outcomes = []
    with tempfile.TemporaryDirectory() as trials:
        for request in json.load(sys.stdin):
            os.environ.update(request.get("env", {}))
            outcomes.append(await play(request, Path(trials), "harbor_exported:ComposeEnvironment"))
    sys.stdout.write("\n" + json.dumps(outcomes) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
