"""Every limit on the content of one request. A request that exceeds one is refused as a whole, naming the limit."""

from __future__ import annotations

from typing import Final

QUEUE_NAME_LENGTH_MAX: Final = 128
KEY_LENGTH_MAX: Final = 1024
"""Characters in a fairness key, over all names of its path."""
KEY_DEPTH_MAX: Final = 8
WEIGHT_MAX: Final = 1_000
"""A higher weight is lowered to this one: no header may give a tenant the whole queue."""
COST_MAX: Final = 1_000_000
CAP_MAX: Final = 1_000_000
RATE_LEAST: Final = 0.000001
"""The lowest rate of a throttle or a fairness key besides 0, in tokens per second."""
RATE_MAX: Final = 1e9
"""The highest rate and the highest burst."""
THROTTLES_MAX: Final = 16
THROTTLE_NAME_LENGTH_MAX: Final = 256
PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""The default of the setting with this name."""
PIECE_BYTES: Final = 512 * 1024
"""The default of the setting with this name: the size of the pieces of an uploaded payload."""
PIECES_WAITING_MAX: Final = 32
"""Pieces of one caller that wait for a commit; more are refused until some are stored."""
UPLOAD_BYTES_MAX: Final = 16 * 1024**3
"""The default of the setting with this name."""
UPLOADS_MAX: Final = 64
"""The default of the setting with this name."""
UPLOADS_BYTES_MAX: Final = 64 * 1024**3
"""The default of the setting with this name."""
UPLOAD_SILENCE_MS: Final = 60_000
"""The default of the setting with this name."""
UPLOAD_ID_LENGTH_MAX: Final = 64
HEADERS_MAX: Final = 128
HEADERS_LENGTH_MAX: Final = 64 * 1024
CORRELATION_ID_LENGTH_MAX: Final = 128
DEDUP_ID_LENGTH_MAX: Final = 256
ORDER_KEY_LENGTH_MAX: Final = 256
UNIQUE_KEY_LENGTH_MAX: Final = 256
FAN_OUT_NAME_LENGTH_MAX: Final = 256
PRODUCER_LENGTH_MAX: Final = 128
"""Characters in the name of a producer that numbers its messages."""
PRODUCER_NUMBER_MAX: Final = 2**53 - 1
BATCH_MAX: Final = 10_000
"""Messages, receipts, ids or config values in one request."""
BATCH_HEADERS_MAX: Final = 100_000
"""Headers of all messages of one request together."""
FORWARD_QUEUES_MAX: Final = 16
"""Queues that one forward sends messages to; they share ``BATCH_MAX``."""
CALLS_MAX: Final = 10_000
"""Calls in one message of the stream."""
JSON_COMMAS_MAX: Final = 100_000
"""Commas in one JSON request, which bound its items before they are decoded."""
CLAIM_MAX: Final = 50_000
"""Messages in one claim, which may be read in several requests."""
TIMESPAN_MS_MAX: Final = 366 * 24 * 3600 * 1000
"""The longest delay, deadline, visibility timeout or window."""
ERROR_LENGTH_MAX: Final = 1_024
"""Characters kept of the error text of a failed attempt; the rest is truncated."""
TRACEBACK_LENGTH_MAX: Final = 4_096
"""Characters kept of the traceback of a failed attempt; its beginning is truncated."""
ERRORS_KEPT_MAX: Final = 10
"""The number of latest failed attempts whose errors a message keeps."""
STATE_BYTES_MAX: Final = 1024 * 1024
RESULT_BYTES_MAX: Final = 1024 * 1024
"""The default of the setting ``result_bytes_max``."""
PROGRESS_NOTE_LENGTH_MAX: Final = 1_024
"""Characters of the note of a progress report."""
CANCEL_REASON_LENGTH_MAX: Final = 256
"""Characters of the reason that a cancel gives."""
CONFIG_KEY_LENGTH_MAX: Final = 512
CONFIG_VALUE_LENGTH_MAX: Final = 64 * 1024
SCRIPT_LENGTH_MAX: Final = 16 * 1024
"""Characters of a script. Compiling takes time that grows with the square of the length, 20 ms at this one."""
HOOK_TIMEOUT_MS_MAX: Final = 25
"""The longest time for one message that a queue's policy may allow its scripts: all queues wait meanwhile."""
HOOK_MEMORY_BYTES_MIN: Final = 64 * 1024
"""The least memory that a script can work with."""
HOOK_MEMORY_BYTES_MAX: Final = 16 * 1024 * 1024
"""The most memory that a queue's policy may allow a script."""
HOOK_COOLDOWN_MS_MIN: Final = 1_000
"""The shortest cooldown of a queue's policy; with a shorter one, failing scripts could exceed their share of time."""
POLICY_KEYS_MAX: Final = 10_000
"""Fairness keys in ``weights`` and in ``caps`` of a queue policy."""
GRANTS_MAX: Final = 100
"""Grants of one API key."""
GRANT_PATTERNS_MAX: Final = 1_000
"""Patterns in one list of a grant."""
OWNER_LENGTH_MAX: Final = 256
PARTITIONS_MAX: Final = 64
"""Partitions of one queue, in a cluster."""
KEYS_SHOWN_MAX: Final = 1_000
"""Fairness keys in one answer about a queue."""
CONSUMER_NAME_LENGTH_MAX: Final = 128
CONSUMERS_MAX: Final = 1_000
"""Registered consumers of one queue."""
SCHEDULES_MAX: Final = 10_000
"""Schedules of one queue."""
SCHEDULE_NAME_LENGTH_MAX: Final = 128
SCHEDULE_PAYLOAD_BYTES_MAX: Final = 64 * 1024
"""The payload of a schedule's message, which the broker keeps in memory."""
SCHEDULE_EVERY_MS_MIN: Final = 1_000
CATCH_UP_MAX: Final = 1_000
"""Ticks that one schedule fires late, and that are counted as missed for one gap."""
CRON_LENGTH_MAX: Final = 256
SINK_NAME_LENGTH_MAX: Final = 128
SINKS_MAX: Final = 1_000
"""Sinks of one queue."""
PART_NAME_LENGTH_MAX: Final = 128
PARTS_MAX: Final = 10_000
"""Parts that one sink may have staged, and that one batch may consist of."""
SINK_SILENCE_MS_MAX: Final = 7 * 24 * 3600 * 1000
"""Messages staged for a sink without calls for this long are dropped."""
