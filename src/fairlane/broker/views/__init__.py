"""Read-only views of the broker's present: queues, deliveries, the journal."""
