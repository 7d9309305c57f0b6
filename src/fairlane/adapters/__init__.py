"""The ports, on real things: clocks, chance, stores."""
