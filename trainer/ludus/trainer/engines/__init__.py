"""Inference engines: what samples from the policy."""
