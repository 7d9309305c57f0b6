"""The contract of every client transport, as tests."""
