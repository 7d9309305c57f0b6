"""A Java that starts quickly and leaves a small machine something for others."""

from __future__ import annotations

import os
from typing import Final

LEAN: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Settings of Spark: tests are over before the optimising compiler and a parallel collector pay off."""


def lean_environment() -> dict[str, str]:
    """Return the environment of a process that may start Spark, so that its Java is lean."""
    settings = " ".join(f"--conf '{name}={value}'" for name, value in LEAN.items())
    return os.environ | {"PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"}
