"""Write an environment, serve it on every wire."""
