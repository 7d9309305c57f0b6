"""Stores and a board in an S3 bucket."""
