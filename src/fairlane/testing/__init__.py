"""Test helpers for programs and store adapters that are built on Fairlane."""
