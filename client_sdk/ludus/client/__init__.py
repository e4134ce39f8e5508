"""Find environments, run episodes, record trajectories."""
