"""The templates of tasks, one module for each application, and `rules` and `across` for those with several."""
