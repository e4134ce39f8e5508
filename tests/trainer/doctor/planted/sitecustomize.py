"""Imported by every Python process of the test: a check that hangs with a process of its own, and one that crashes."""

import os
import subprocess
import sys
import time
from pathlib import Path

if "ludus.trainer.doctor.process" in sys.orig_argv:
    if "canary" in sys.orig_argv:
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        pids = Path(os.environ["PLANTED_PIDS"])
        pids.with_suffix(".new").write_text(f"{os.getpid()} {child.pid}")
        pids.with_suffix(".new").rename(pids)
        while True:
            time.sleep(1000)
    if "attention-flex" in sys.orig_argv:
        print("about to crash")  # noqa: T201
        sys.stdout.flush()
        os.abort()
    if sys.orig_argv[-2].endswith(":resumed"):
        sys.exit("planted in the resumed process")
