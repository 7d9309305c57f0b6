"""A simulation of one broker on a fake clock and a faulty disk."""
