"""The program inside a sandbox. It uses only the standard library; the server imports `files` and `messages` of it."""
