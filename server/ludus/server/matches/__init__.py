"""Matches: episodes of several seats that share one state.

running_match.py   one match: its turns, and the rewards of its seats
"""
