"""Who sends a request, which names are allowed, and which packages an account may see or change."""
