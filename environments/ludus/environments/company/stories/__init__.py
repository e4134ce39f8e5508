"""The stories that chains tell: five days of work, of which each goes on with what the earlier ones left."""
