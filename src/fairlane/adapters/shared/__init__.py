"""What the stores and boards that several processes can reach have in common."""
