"""Programs that run inside a sandbox: they use the standard library, this package, and what the sandbox shows."""
