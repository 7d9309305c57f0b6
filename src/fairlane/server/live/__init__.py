"""The live feed of a server: queues, rates and shares about once a second, as server-sent events."""
