"""What the shell is handed: a clock, a store, hooks. Protocols and the values that cross them."""
