"""Inference engines, which sample from the policy."""
