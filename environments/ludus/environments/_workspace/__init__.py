"""Workspaces of generated files: archives, git repositories, a shell, and words for names."""
