"""A broker in your own process: two tenants, a throttle, a Lua hook, a crash and a restart.

A child process works and is killed; the next process that opens the folder finds everything that was confirmed.
"""

import multiprocessing
import os
import tempfile

from fairlane.assembly import BrokerConfig, NewMessage, open_broker

ON_ENQUEUE = """
function on_enqueue(msg)
  return {
    fairness_key = msg.headers["tenant"] or "default",
    throttle_keys = { msg.headers["endpoint"] },
  }
end
"""


def send(tenant: str, endpoint: str, count: int) -> list[NewMessage]:
    headers = {"tenant": tenant, "endpoint": endpoint}
    return [NewMessage(payload=f"{tenant} {at}".encode(), headers=headers) for at in range(count)]


def work_and_die(folder: str) -> None:
    broker = open_broker(BrokerConfig(path=folder))
    broker.create_queue("jobs", {"on_enqueue": ON_ENQUEUE, "visibility_timeout_ms": 500})
    broker.set_throttle("mail-api", rate=40, burst=4)
    noisy = broker.enqueue_many("jobs", send("noisy", "mail-api", 60))
    broker.enqueue_many("jobs", send("quiet", "database", 5))
    print("Enqueued durably: 60 jobs of noisy, 5 of quiet.")
    first = broker.lease("jobs", 8, wait_ms=1_000)
    print("Leased first:", ", ".join(job.payload.decode() for job in first))
    print("Why noisy 59 waits:", broker.explain("jobs", str(noisy[59])).words)
    broker.ack_many("jobs", first[:3])
    print(f"3 of these {len(first)} are acknowledged. Then the process dies.", flush=True)
    os._exit(1)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        child = multiprocessing.get_context("spawn").Process(target=work_and_die, args=[folder])
        child.start()
        child.join()
        with open_broker(BrokerConfig(path=folder)) as broker:
            view = broker.queue("jobs")
            print(f"After the restart: {view.waiting} jobs wait, {view.leased} are still leased to the dead process.")
            done: list[str] = []
            while jobs := broker.lease("jobs", 10, wait_ms=1_500):
                broker.ack_many("jobs", jobs)
                done += [job.payload.decode() for job in jobs]
            print(f"Handled: {len(set(done))} different jobs. With those before the crash: {len(set(done)) + 3} of 65.")


if __name__ == "__main__":
    main()
