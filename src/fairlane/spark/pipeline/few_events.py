"""A session for runs on few events.

Spark compiles every step of a query to Java and plans the rest again after each shuffle. That pays off for many rows.
For few it takes longer than the work itself: a first run on 24,000 events took 64 s with both and 46 s without.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession, is_remote

from fairlane.spark.session import copy_settings

FEW_EVENTS: Final = 50_000
"""The default number of events below which a run uses such a session."""

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""What such a session has set: rows are interpreted, by one task per step."""

_known: Final[weakref.WeakKeyDictionary[SparkSession, SparkSession]] = weakref.WeakKeyDictionary()
"""The sessions for few events, by the session that they were made from. A follower would make thousands otherwise."""


def session_for_few_events(spark: SparkSession) -> SparkSession:
    """Return another session of the same application for few events; with Spark Connect the same one."""
    if is_remote():
        return spark
    if spark not in _known:
        _known[spark] = spark.newSession()
    copy_settings(spark, _known[spark], SETTINGS)
    return _known[spark]
