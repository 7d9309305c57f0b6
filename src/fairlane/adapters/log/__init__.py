"""A store in a segmented log on the local disk."""
