"""Types of results."""
