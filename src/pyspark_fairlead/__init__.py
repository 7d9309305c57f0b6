"""Spark looks for modules of this kind of name when it meets a format it does not know."""
