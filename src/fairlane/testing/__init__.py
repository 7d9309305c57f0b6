"""What tests of Fairlane, and of adapters and programs built on it, are made of."""
