"""The host of episodes: what transports call, over the rooms below."""
