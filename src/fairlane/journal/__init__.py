"""The journal: every decision as a record under one sequence, its encoding, and its events for readers outside."""
