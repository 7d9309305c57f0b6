"""Work on very many messages at once: filling a queue from tables, archiving, choosing dead letters with SQL."""
