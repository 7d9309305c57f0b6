"""Hooks in Lua, run in a sandbox."""
