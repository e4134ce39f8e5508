"""Rebuilding episodes from what a journal holds: after a restart, for a fork, or to check a recording.

recovery.py      all episodes of an earlier process; head_start.py does most of it while that process still serves
histories.py     what a journal holds, by episode; recorded.py reads a journal that a server writes
repeating.py     an episode's calls, made again; matches.py: those of all seats of a match
undoing.py       calls that a journal has refused
reexecution.py   a recorded episode, compared call by call
"""
