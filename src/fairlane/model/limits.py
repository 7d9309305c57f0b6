"""Every limit on what one request may carry, by name. What breaks one is refused whole, with the limit's name."""

from __future__ import annotations

from typing import Final

QUEUE_NAME_LENGTH_MAX: Final = 128
KEY_LENGTH_MAX: Final = 1024
"""Characters in a fairness key, all names of its path together."""
KEY_DEPTH_MAX: Final = 8
WEIGHT_MAX: Final = 1_000
"""A weight above this is lowered to it: no header may buy a tenant the whole queue."""
COST_MAX: Final = 1_000_000
CAP_MAX: Final = 1_000_000
THROTTLES_MAX: Final = 16
THROTTLE_NAME_LENGTH_MAX: Final = 256
PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""The default of the setting of this name."""
HEADERS_MAX: Final = 128
HEADERS_LENGTH_MAX: Final = 64 * 1024
CORRELATION_ID_LENGTH_MAX: Final = 128
DEDUP_ID_LENGTH_MAX: Final = 256
BATCH_MAX: Final = 10_000
"""Messages in one request."""
CLAIM_MAX: Final = 50_000
"""Messages in one claim, which is read in as many requests as it takes."""
TIMESPAN_MS_MAX: Final = 366 * 24 * 3600 * 1000
"""The longest delay, deadline, visibility timeout or window."""
ERROR_LENGTH_MAX: Final = 1_024
"""Characters kept of the error text of a failed attempt; the rest is cut off."""
ERRORS_KEPT_MAX: Final = 10
"""Failed attempts whose errors a message remembers, the latest ones."""
STATE_BYTES_MAX: Final = 1024 * 1024
CONFIG_KEY_LENGTH_MAX: Final = 512
CONFIG_VALUE_LENGTH_MAX: Final = 64 * 1024
SCRIPT_LENGTH_MAX: Final = 64 * 1024
OWNER_LENGTH_MAX: Final = 256
PARTITIONS_MAX: Final = 64
"""Partitions of one queue, in a cluster."""
KEYS_SHOWN_MAX: Final = 1_000
"""Fairness keys in one answer about a queue."""
CONSUMER_NAME_LENGTH_MAX: Final = 128
CONSUMERS_MAX: Final = 1_000
"""Registered consumers of one queue."""
SINK_NAME_LENGTH_MAX: Final = 128
SINKS_MAX: Final = 1_000
"""Sinks of one queue."""
PART_NAME_LENGTH_MAX: Final = 128
PARTS_MAX: Final = 10_000
"""Parts that one sink has staged, and that one batch is published of."""
SINK_SILENCE_MS_MAX: Final = 7 * 24 * 3600 * 1000
"""What is staged for a sink that was not heard of for so long is dropped."""
