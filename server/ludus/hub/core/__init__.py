"""What the other parts of a hub stand on: files by their digest, rates, other processes, and answers with errors."""
