"""The registry: names, wheels, publishing and the catalog."""
