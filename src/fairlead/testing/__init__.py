"""What tests of Fairlead, and of adapters and programs built on it, are made of."""
