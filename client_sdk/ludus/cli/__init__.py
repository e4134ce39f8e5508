"""The `ludus` command.

Commands are found through the entry-point group `ludus.commands`; ours enter through the same door as plugins'.
An entry point's value is a function `register(app: typer.Typer) -> None` that adds one or more commands to `app`:

    [project.entry-points."ludus.commands"]
    server = "ludus.server.web.commands:register"        # the entry point's own name means nothing

    # ludus/server/commands.py
    COMMANDS: Final = {"serve": "Serve environments.", "token": "Make and list tokens."}

    def register(app: typer.Typer) -> None:
        app.command("serve")(serve)
        app.add_typer(token, name="token")

`COMMANDS`, a literal dict from each command's name to one line of help, is read from the module's source *without
importing it*: so `ludus --help` stays fast however heavy the commands are, and a module is imported only when one of
its commands is invoked (its own heavy imports may therefore stand at its top). A module without `COMMANDS` works too,
but is imported whenever `ludus` starts.

Errors. A command raises (`ludus.protocol.errors`, or `typer.BadParameter`); `main` prints one line on stderr and
exits. `LUDUS_DEBUG=1` shows the traceback. A missing package answers with the pip command that brings it.

Exit codes: see `ExitCode`.
"""

from __future__ import annotations

from ludus.cli._app import ExitCode, main

__all__ = ["ExitCode", "main"]
