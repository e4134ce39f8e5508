"""From tasks to groups of episodes that can be learned from."""
