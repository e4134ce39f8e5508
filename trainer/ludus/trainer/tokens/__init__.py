"""Conversations as tokens. Text is encoded once, and sampled tokens are never encoded again."""
