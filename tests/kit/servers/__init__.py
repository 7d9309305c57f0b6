"""Real servers in processes of their own: PostgreSQL, S3, and Fairlane nodes."""
