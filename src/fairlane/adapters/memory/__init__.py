"""A store and a board in memory."""
