"""What every part of the trainer shares: its settings, its errors, samples, and checkpoints."""
