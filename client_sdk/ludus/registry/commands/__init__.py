"""The commands for hubs: `ludus publish`, `ludus install`, `ludus account` and others."""
