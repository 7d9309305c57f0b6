"""The shell: turns requests into commands, commits what they lead to, and only then answers."""
