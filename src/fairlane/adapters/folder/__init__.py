"""What stores in a folder of the local disk share: the mark, the high-water mark, and access to files."""
