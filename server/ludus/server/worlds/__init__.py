"""Worlds: state that outlives an episode, with versions, one writer at a time and branches."""
