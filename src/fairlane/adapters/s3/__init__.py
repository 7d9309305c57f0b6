"""Stores and a board in an S3 bucket, or in a container of Azure Blob Storage, which works the same way."""
