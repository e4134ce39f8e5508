"""The parts of a running hub."""
