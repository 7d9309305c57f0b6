"""The outbox in an application's own PostgreSQL database: two functions to call, and the tables behind them.

An application that changes its tables and enqueues a message has two systems to keep in step: a crash between the
commit and the enqueue loses the message, and the other way round it announces what never happened. With an outbox, the
message is a row that the application writes in its own transaction, so both happen or neither does. A relay
(``relay.py``) moves committed rows to the broker, each exactly once.

``messages`` holds rows that are not yet in the broker. They are only inserted and deleted, never updated.
``batches`` names, for each queue, the rows that are being moved and the number of their batch.
``rejected`` holds rows that the broker refuses for good, with the reason.
``identity`` has the name under which the broker knows this outbox, and the epoch of its relay.
"""

from __future__ import annotations

from typing import Final, LiteralString

CHANNEL: Final = "fairlane_outbox"
"""The channel on which a committed message announces itself."""

# The functions run with the rights of their owner, so an application needs no right to the tables, only USAGE on the
# schema. A fixed search_path keeps the caller from slipping its own functions in.
INSTALL: Final[LiteralString] = """
CREATE SCHEMA IF NOT EXISTS fairlane_outbox;

CREATE TABLE IF NOT EXISTS fairlane_outbox.identity (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  sink TEXT NOT NULL,
  epoch BIGINT NOT NULL
);

INSERT INTO fairlane_outbox.identity (one, sink, epoch)
VALUES (1, 'outbox-' || replace(gen_random_uuid()::text, '-', ''), 0)
ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS fairlane_outbox.messages (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue TEXT NOT NULL,
  payload BYTEA NOT NULL,
  terms JSONB NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now()
);

CREATE INDEX IF NOT EXISTS messages_of_queue ON fairlane_outbox.messages (queue, id);

CREATE TABLE IF NOT EXISTS fairlane_outbox.batches (
  queue TEXT PRIMARY KEY,
  batch BIGINT NOT NULL,
  ids BIGINT[] NOT NULL
);

CREATE TABLE IF NOT EXISTS fairlane_outbox.rejected (
  id BIGINT PRIMARY KEY,
  queue TEXT NOT NULL,
  payload BYTEA NOT NULL,
  terms JSONB NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  rejected_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now(),
  error TEXT NOT NULL
);

CREATE OR REPLACE FUNCTION fairlane_outbox.enqueue(queue TEXT, payload BYTEA, terms JSONB DEFAULT '{}')
RETURNS BIGINT LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  number BIGINT;
BEGIN
  INSERT INTO fairlane_outbox.messages AS m (queue, payload, terms)
  VALUES (enqueue.queue, enqueue.payload, enqueue.terms)
  RETURNING m.id INTO number;
  PERFORM pg_notify('fairlane_outbox', '');
  RETURN number;
END
$$;

CREATE OR REPLACE FUNCTION fairlane_outbox.enqueue_json(queue TEXT, payload JSONB, terms JSONB DEFAULT '{}')
RETURNS BIGINT LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT fairlane_outbox.enqueue(queue, convert_to(payload::text, 'UTF8'), terms)
$$;
"""
"""Creates what is missing of the outbox; safe to run again. PostgreSQL 13 or newer."""
