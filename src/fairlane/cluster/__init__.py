"""Several nodes over one store: who owns which group of queues, and how the others find it."""
