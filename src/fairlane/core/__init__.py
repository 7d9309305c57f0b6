"""The rules: what each command leads to, and what each record changes. No clock, chance, disk, socket or thread."""
