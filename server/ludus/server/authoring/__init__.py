"""What an author writes: environments, tools and their results, splits, noise."""
