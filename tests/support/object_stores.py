"""An S3 object store in a process of its own: moto, from its own virtual environment."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import httpx
import obstore
from free_ports import free_port
from obstore.store import S3Store
from peer_clients import peer_variables, python_of
from waiting import answers, block_until_up

PATIENCE = 60.0
SECRETS = {"AWS_ACCESS_KEY_ID": "hub", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
_numbers = itertools.count(1)


class ObjectStore:
    """Runs until `stop`."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "moto.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of a hub that uses it."""
        return {**SECRETS, "AWS_ENDPOINT_URL": self.url}

    def start(self) -> None:
        """Start it; what it had before is gone."""
        command = [python_of("moto"), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=peer_variables()
            )
        block_until_up(self._process, lambda: answers(self.url), self._log)

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None

    def new_bucket(self) -> str:
        """Make a bucket, and return its address with a prefix."""
        name = f"bucket-{next(_numbers)}"
        assert httpx.put(f"{self.url}/{name}", timeout=PATIENCE).status_code == 200
        return f"s3://{name}/wheels"

    def change(self, blobs: str, digest: str, data: bytes | None) -> None:
        """Replace an object, or delete it, as a user with access to the bucket could."""
        bucket, _, prefix = blobs.removeprefix("s3://").partition("/")
        store = S3Store(
            bucket, prefix=prefix, endpoint=self.url, client_options={"allow_http": True}, region="us-east-1",
            access_key_id=SECRETS["AWS_ACCESS_KEY_ID"], secret_access_key=SECRETS["AWS_SECRET_ACCESS_KEY"],
        )  # fmt: skip
        key = f"{digest[:2]}/{digest}"
        if data is None:
            obstore.delete(store, key)
        else:
            obstore.put(store, key, data, mode="overwrite")
