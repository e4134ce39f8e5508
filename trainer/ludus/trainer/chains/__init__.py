"""Chains of tasks: who keeps the worlds, how a sample plays them, what counts for a task, and what they say."""
