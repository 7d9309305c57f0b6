"""What the stores that several processes can reach have in common."""
