"""Make .venv with everything that development needs: `python3 scripts/bootstrap.py`. Quick when nothing has changed."""

from __future__ import annotations

import hashlib
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - anybody may call this with anything
    sys.exit(f"Ludus needs Python 3.11 or newer, and this is {sys.version.split()[0]}; try `make PYTHON=python3.12 …`")

import installer

ENVIRONMENT = installer.ROOT / ".venv"
STAMP = ENVIRONMENT / ".ludus-installed"


def fingerprint() -> str:
    """What decides the contents of the virtual environment."""
    library = [folder / "pyproject.toml" for folder in installer.LIBRARY]
    parts = [installer.ROOT / "pyproject.toml", installer.CONSTRAINTS, *library]
    return hashlib.sha256(b"\0".join(part.read_bytes() for part in parts) + sys.version.encode()).hexdigest()


def main() -> None:
    """Create or update .venv."""
    wanted = fingerprint()
    if STAMP.exists() and STAMP.read_text(encoding="utf-8") == wanted:
        return
    try:
        installer.say(f"making .venv with Python {sys.version.split()[0]}")
        installer.create(ENVIRONMENT)
        uv = installer.uv_of(ENVIRONMENT)
        installer.say("installing Ludus and its development tools (a minute or two the first time)")
        installer.remove_former_names(ENVIRONMENT, "ludus-rl")
        editable = [f"{installer.ROOT}[dev]", *map(str, installer.LIBRARY)]
        options = [option for folder in editable for option in ("-e", folder)]
        installer.install(ENVIRONMENT, [*options, "-c", str(installer.CONSTRAINTS)], uv=uv)
    except installer.InstallError as error:
        sys.exit(f"could not set up .venv:\n{error}")
    STAMP.write_text(wanted, encoding="utf-8")
    installer.say(".venv is ready")


if __name__ == "__main__":
    main()
