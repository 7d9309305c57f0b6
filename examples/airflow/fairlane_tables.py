"""An Airflow DAG that updates the tables every hour, and checks them: put it into the folder of your DAGs.

It needs ``apache-airflow-providers-apache-spark``, a Spark connection ``spark_default``, and a Python with
``fairlane[spark]`` on the driver and the executors. A run takes what is new, so a run that was missed needs no
backfill, and one at a time may write.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

import pyspark_fairlane.submit

SERVER = "https://queues.example:7420"
TABLES = "/data/fairlane/tables"

with DAG(
    "fairlane_tables",
    schedule=timedelta(hours=1),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
) as dag:
    SparkSubmitOperator(
        task_id="update",
        application=pyspark_fairlane.submit.__file__,
        application_args=["--server", SERVER, "pipeline", "run", "--tables", TABLES, "--once"],
        env_vars={"FAIRLANE_API_KEY": "{{ conn.fairlane.password }}"},
    )
