"""Worlds: state that outlives an episode, with versions, one writer at a time and branches.

worlds.py     the worlds of a server
requests.py   requests about them
"""
