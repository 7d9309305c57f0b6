"""The nouns of the broker, and their limits: message, queue policy, lease, results. Values only."""
