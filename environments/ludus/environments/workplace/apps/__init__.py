"""The tools, one class for each application; they work on the desk of the person the agent works for."""
