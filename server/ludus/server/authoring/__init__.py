"""The authoring API: environments, tools and their results, splits, noise."""
