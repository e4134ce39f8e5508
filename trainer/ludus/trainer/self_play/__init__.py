"""Self-play: who plays the other seats of a match, the matches themselves, and what they say about each opponent."""
