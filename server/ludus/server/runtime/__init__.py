"""The episode runtime: one host behind every transport, and the modules that start, run and end episodes."""
