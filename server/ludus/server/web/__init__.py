"""The server process: the ASGI application, HTTP, logs, metrics and the `serve` command."""
