"""From scored token sequences to new weights: advantages, losses, packing, the learner."""
