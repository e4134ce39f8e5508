"""A PostgreSQL server for tests: private, on a Unix socket only, and killed, stopped and paused as a test wants."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

import pytest
from waiting import block_until

USER = "postgres"
PATIENCE = 60.0
HBA = "local all guarded scram-sha-256\nlocal all all trust\n"


def programs() -> Path | None:
    """The folder of PostgreSQL's programs, which Debian keeps out of the PATH; None where it is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


class PostgresServer:
    """A server with its own folder. Databases are made by `new_url`."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._numbers = itertools.count(1)
        self.folder = Path(tempfile.mkdtemp(prefix="ludus-postgres-"))
        self._drop: list[str] = []
        if os.getuid() == 0:  # the programs refuse to run as root
            owner = pwd.getpwnam(USER)
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
            self._drop = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups", "--"]
        self.data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        options = ["--no-sync", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--locale=C"]
        self._run("initdb", *options, str(self.data))
        (self.data / "pg_hba.conf").write_text(HBA)
        with (self.data / "postgresql.conf").open("a") as config:  # otherwise a start after `kill` takes seconds
            config.write("fsync = off\n")

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [*self._drop, str(self._programs / program), *arguments], cwd=self.folder, capture_output=True, text=True,
            timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = {
            "listen_addresses": "", "unix_socket_directories": str(self.folder),
            "max_connections": "60", "shared_buffers": "16MB",
        }  # fmt: skip
        given = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]

        def answers() -> bool:
            if self._answers():
                return True
            if self._process is None or self._process.poll() is not None:  # also while killed processes still end
                with (self.folder / "log").open("ab") as log:
                    self._process = subprocess.Popen(
                        [*self._drop, str(self._programs / "postgres"), "-D", str(self.data), *given],
                        stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                    )  # fmt: skip
            return False

        block_until(answers, PATIENCE, (self.folder / "log").read_text)

    def _answers(self) -> bool:
        ask = [*self._drop, str(self._programs / "pg_isready"), "-q", "-h", str(self.folder)]
        return subprocess.run(ask, timeout=PATIENCE).returncode == 0

    def _signal_all(self, number: int) -> None:
        assert self._process is not None
        parent = self._process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for pid in [parent, *map(int, children)]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def pause(self) -> None:
        """Stop all processes of the server; they answer nothing, and connections stay open."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let all processes go on."""
        self._signal_all(signal.SIGCONT)

    def kill(self) -> None:
        """Kill all processes of the server."""
        self._signal_all(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(PATIENCE)

    def stop(self) -> None:
        """Stop the server in order, without waiting for its clients."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE)

    def sql(self, statement: str, database: str = USER) -> str:
        """Run a statement, and return what it answers, as psql shows it without decoration."""
        return self._run("psql", "-XAtq", "-h", str(self.folder), "-U", USER, "-d", database, "-c", statement).strip()

    def flush(self, *, on: bool) -> None:
        """Let the server flush its commits to the disk, or not, which is the default here."""
        self.sql(f"ALTER SYSTEM SET fsync = {'on' if on else 'off'}")
        self.sql("SELECT pg_reload_conf()")
        block_until(lambda: self.sql("SHOW fsync") == ("on" if on else "off"), PATIENCE)

    def url(self, database: str, user: str = USER) -> str:
        """The URL of a database."""
        return f"postgresql://{user}@/{database}?host={quote(str(self.folder), safe='')}"

    def new_url(self) -> str:
        """Make a database, and return its URL."""
        name = f"test{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def close(self) -> None:
        """Kill the server, and remove its folder."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def name_of(url: str) -> str:
    """The database of a URL that `new_url` has made."""
    return url.partition("@/")[2].partition("?")[0]


def started_server() -> PostgresServer:
    """A server that answers; skip the test where PostgreSQL is not installed."""
    folder = programs()
    if folder is None:
        pytest.skip("PostgreSQL is not installed")
    server = PostgresServer(folder)
    server.start()
    return server
