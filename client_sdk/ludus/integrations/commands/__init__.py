"""The command `ludus export`, for trainers and runners of others."""
