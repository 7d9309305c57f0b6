"""The broker's one writer: its cycle, its state, recovery and housekeeping."""
