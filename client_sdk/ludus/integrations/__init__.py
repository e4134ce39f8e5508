"""Adapters: trainers and evaluators of others play the environments of a Ludus server through their own interfaces.

Each module is for one system and imports it where it is used. Nothing here is imported by another package of Ludus.
Every adapter treats an unscored episode the same way:

1. An episode whose infrastructure failed is played again, at most twice more, if the adapter runs the episode.
2. An episode that stays unscored leaves by the system's own way: None, an exception, or a mask.
3. Where the system has none, the loss mask is 0 and the value is the mean of the group's scored episodes. OpenRLHF
   cannot take an episode without learned tokens, so one token stays, with an advantage of 0.

An unscored episode is never worth 0 by default, and `ludus.integrations.unscored.UNSCORED` counts all of them.
"""
