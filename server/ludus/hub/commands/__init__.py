"""The commands of a hub's operator: `ludus hub`."""
