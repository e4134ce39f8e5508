"""What all sandboxes share: settings, results and errors, processes, and what is left of ended ones."""
