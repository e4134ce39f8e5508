"""Rollouts: choosing tasks, running groups of episodes, and collecting them into batches."""
