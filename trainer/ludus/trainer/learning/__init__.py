"""Learning from scored token sequences: advantages, losses, packing, and the learner."""
