"""The journal: every decision as a versioned record under one sequence, and how it is written down."""
