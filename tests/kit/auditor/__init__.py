"""An independent set of books that checks every commit, answer and delivery of a simulated broker."""
