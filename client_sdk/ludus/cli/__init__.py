"""The `ludus` command.

Commands are found through the entry-point group `ludus.commands`, the built-in ones as well as those of plugins.
An entry point's value is a function `register(app: typer.Typer) -> None` that adds one or more commands to `app`:

    [project.entry-points."ludus.commands"]
    server = "ludus.server.commands.serve:register"        # the entry point's own name has no meaning

    # ludus/server/commands/serve.py
    COMMANDS: Final = {"serve": "Serve environments.", "token": "Make and list tokens."}

    def register(app: typer.Typer) -> None:
        app.command("serve")(serve)
        app.add_typer(token, name="token")

`COMMANDS` is a literal dict from each command's name to one line of help. It is read from the module's source *without
importing it*. So `ludus --help` stays fast, and a module is imported only when one of its commands is invoked; it may
therefore have slow imports at its top. A module without `COMMANDS` works too, but is imported whenever `ludus` starts.

Errors: a command raises an error of `ludus.protocol.errors` or `typer.BadParameter`; `main` prints one line on stderr
and exits. `LUDUS_DEBUG=1` shows the traceback. If a package is missing, the line has the pip command that installs it.

Exit codes: see `ExitCode`.
"""

from __future__ import annotations

from ludus.cli.app import ExitCode, main

__all__ = ["ExitCode", "main"]
