"""A model of power loss: what a disk may hold after a crash, for every point of a recorded run."""
