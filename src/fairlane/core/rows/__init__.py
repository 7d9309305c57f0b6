"""Plain messages that wait, as rows of columns: the shelves, the mapping over them, and the chunks of their bodies."""
