"""The settings of a hub, of each of its parts, and the file that holds them."""
