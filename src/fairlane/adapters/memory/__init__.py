"""A store and a board that live in memory."""
