"""From a broker's journal to answers: who waited and why, who used what, and what another weight would have done.

A broker on a fake clock handles ten minutes of generated traffic in seconds. Everything after that works the same with
your own journal: export it, build the tables with Spark, write the report, and try another policy.
"""

import json
import sys
import tempfile
from pathlib import Path

from fairlane.report import make_report
from fairlane.spark import spark_session
from fairlane.spark.pipeline import CONF, JournalFolder, run_pipeline, verify
from fairlane.spark.whatif.comparison import Journal, compare
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.sweeps import sweep
from fairlane.testing.stepped import SteppedBroker
from fairlane.testing.traffic import Traffic
from fairlane.testing.traffic_drive import make_journal

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fairlane-"))

traffic = Traffic(messages=8_000, tenants=12, load=0.95, burst_part=0.5, throttles=("mail-api",), deadline_part=0.05)
brokers: list[SteppedBroker] = []
make_journal(folder / "journal", traffic, keep=brokers.append)
print(f"{traffic.messages:,} messages of {traffic.tenants} tenants went through a broker in virtual time.")

spark = spark_session("fairlane-demo", master="local[2]", conf=CONF)
done = run_pipeline(spark, JournalFolder(folder / "journal"), folder / "tables")
print(f"Spark built the tables of {done.events:,} events.")
verified = verify(spark, brokers[0], folder / "tables")
if not verified.agrees:
    sys.exit(f"The tables differ from the broker: {verified.mismatches or verified.gaps}")
print(f"They agree with what the broker has of each tenant in {verified.queues} queues.")

make_report(folder / "tables", folder / "report")
told = json.loads((folder / "report" / "report.json").read_text())["sections"]
for row in told["usage"][:3]:
    print(f"  {row['key']:<10} used {row['cost_true']:>6,} of cost in {row['acked']:>5,} messages")
worst = told["waits"][0]
print(f"  {worst['key']} waited longest: p99 {worst['wait_p99_ms'] / 1000:.1f} s")

journal = Journal(folder / "journal")
scenarios = sweep(Scenario(name=ORIGINAL), [f"weight:{worst['key']}=4"], journal.queues, journal.policies)
found = compare(journal, scenarios, spark=spark)
before, after = (found.of(at, journal.queues[0]) for at in (0, 1))
others = [key for key in before if key != worst["key"]]
slower = max(others, key=lambda key: after[key].wait_p99_ms - before[key].wait_p99_ms)
print(
    f"What if {worst['key']} had weight 4? Its p99 wait would have been {after[worst['key']].wait_p99_ms / 1000:.1f} s "
    f"instead of {before[worst['key']].wait_p99_ms / 1000:.1f} s, "
    f"and {slower}'s {after[slower].wait_p99_ms / 1000:.1f} s instead of {before[slower].wait_p99_ms / 1000:.1f} s."
)
spark.stop()
print(f"Report: {folder / 'report' / 'report.html'}")
