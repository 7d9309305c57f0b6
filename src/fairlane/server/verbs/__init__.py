"""What each verb does, the same for every door."""
