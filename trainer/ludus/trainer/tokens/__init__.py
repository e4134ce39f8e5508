"""Conversations as tokens: rendered once, sampled from, never encoded again."""
