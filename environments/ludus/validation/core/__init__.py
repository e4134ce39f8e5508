"""What the checks of `ludus validate` share: the environment under test, plays, findings, and where they run."""
