"""Rebuilding episodes from what a journal holds: after a restart, for a fork, or to check a recording."""
