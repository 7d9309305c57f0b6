"""A FastAPI service whose requests take fair turns: first between tenants, then between each tenant's routes.

Run it with ``python examples/fastapi_gate.py``: it floods itself, in process, and prints when each request started.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import httpx
from fastapi import FastAPI

from fairlane.asgi import FairGate, FairQueue, header
from fairlane.asgi.protocol import Scope

WORK_S = 0.02


def tenant_and_route(scope: Scope) -> tuple[str, str]:
    """Return a path as the key: tenants share the service, and a tenant's routes share its part."""
    return header(scope, "x-tenant") or "nobody", scope["path"].strip("/") or "home"


gate = FairGate(in_flight=2, key_waiting_max=50)
app = FastAPI()
app.add_middleware(FairQueue, gate=gate, key=tenant_and_route, exempt=lambda scope: scope["path"] == "/health")


@app.get("/reports")
async def reports() -> dict[str, float]:
    return await work()


@app.get("/search")
async def search() -> dict[str, float]:
    return await work()


@app.get("/health")
async def health() -> dict[str, int]:
    stats = gate.stats()
    return {"in_flight": stats.in_flight, "waiting": stats.waiting}


async def work() -> dict[str, float]:
    started_at_s = time.monotonic()
    await asyncio.sleep(WORK_S)  # stands for a query or a call to another service
    return {"started_at_s": started_at_s}


@dataclass(frozen=True, slots=True)
class Start:
    sent: int
    tenant: str
    route: str
    started_at_s: float


async def send(client: httpx.AsyncClient, sent: int, tenant: str, route: str) -> Start:
    response = await client.get(route, headers={"x-tenant": tenant})
    response.raise_for_status()
    return Start(sent, tenant, route, response.json()["started_at_s"])


async def flood() -> list[Start]:
    """Send 20 reports and 2 searches of noisy, and only then 3 searches of quiet."""
    wishes = [("noisy", "/reports")] * 20 + [("noisy", "/search")] * 2 + [("quiet", "/search")] * 3
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        starts = await asyncio.gather(*(send(client, at, *wish) for at, wish in enumerate(wishes, start=1)))
    return sorted(starts, key=lambda start: (start.started_at_s, start.sent))


def print_table(starts: list[Start]) -> None:
    first_s = starts[0].started_at_s
    print(f"{'started':>7}  {'sent':>4}  {'tenant':6}  {'route':8}  {'after':>6}")
    for at, start in enumerate(starts, start=1):
        after_ms = round((start.started_at_s - first_s) * 1000)
        print(f"{at:>7}  {start.sent:>4}  {start.tenant:6}  {start.route:8}  {after_ms:>3} ms")


def main() -> None:
    starts = asyncio.run(flood())
    print_table(starts)
    last_quiet = max(at for at, start in enumerate(starts, start=1) if start.tenant == "quiet")
    print(f"\nquiet sent its 3 requests after noisy's 22, and the last of them was number {last_quiet} to start.")


if __name__ == "__main__":
    main()
