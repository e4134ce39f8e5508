"""The world of the workplace: a generated company in an in-memory SQLite database, without tasks and grading."""
