"""Collecting rollouts: which way of playing an episode takes, and what makes a batch."""
