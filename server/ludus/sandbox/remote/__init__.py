"""Sandboxes on other machines: `daemon` is `ludus sandboxd`, and `provider` is the backend `sandboxd` that uses it."""
