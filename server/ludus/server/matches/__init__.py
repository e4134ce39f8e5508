"""Matches: episodes of several seats that share one state."""
