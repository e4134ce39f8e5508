"""The episode runtime: one host behind every transport, and what a step passes through."""
