"""The same small application in each framework, behind a fair queue, which tests can observe and control."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi import Request as FastAPIRequest
from litestar import Litestar, post
from litestar import Request as LitestarRequest
from litestar import get as litestar_get
from litestar.middleware import DefineMiddleware
from starlette.applications import Starlette
from starlette.requests import Request  # noqa: TC002 - beside FastAPI's and Litestar's, which are needed at run time
from starlette.responses import JSONResponse
from starlette.routing import Route

from fairlane.asgi import FairGate, FairQueue
from fairlane.asgi.protocol import ASGIApp, Scope
from fairlane.scheduler import KeyPolicy

IN_FLIGHT = 4


class Stage:
    """Records the requests that start, and finishes one request per permit of the test."""

    def __init__(self) -> None:
        self.gate = FairGate(
            in_flight=IN_FLIGHT,
            waiting_max=400,
            key_waiting_max=300,
            policies={"small": KeyPolicy(waiting_max=2), "capped": KeyPolicy(cap=1)},
        )
        self.started: list[str] = []
        self.running = 0
        self.running_max = 0
        self._permits = asyncio.Semaphore(0)

    async def work(self, name: str, body: bytes) -> dict[str, Any]:
        self.started.append(name)
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        try:
            await self._permits.acquire()
        finally:
            self.running -= 1
        return {"name": name, "sha256": hashlib.sha256(body).hexdigest()}

    def allow(self, count: int) -> dict[str, Any]:
        for _ in range(count):
            self._permits.release()
        return self.state()

    def state(self) -> dict[str, Any]:
        return dataclasses.asdict(self.gate.stats()) | {
            "started": self.started,
            "running": self.running,
            "running_max": self.running_max,
        }


def is_control(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.startswith("/control")


def starlette_app(stage: Stage) -> ASGIApp:
    async def work(request: Request) -> JSONResponse:
        return JSONResponse(await stage.work(request.query_params["name"], await request.body()))

    async def state(_request: Request) -> JSONResponse:
        return JSONResponse(stage.state())

    async def allow(request: Request) -> JSONResponse:
        return JSONResponse(stage.allow(int(request.query_params["count"])))

    app = Starlette(
        routes=[
            Route("/work", work, methods=["POST"]),
            Route("/control/state", state),
            Route("/control/allow", allow, methods=["POST"]),
        ]
    )
    app.add_middleware(FairQueue, gate=stage.gate, key="x-tenant", exempt=is_control)
    return app


def fastapi_app(stage: Stage) -> ASGIApp:
    app = FastAPI()
    app.add_middleware(FairQueue, gate=stage.gate, key="x-tenant", exempt=is_control)

    # The annotations of the handlers are classes of this module: FastAPI looks them up by name.
    @app.post("/work")
    async def work(name: str, request: FastAPIRequest) -> dict[str, Any]:
        return await stage.work(name, await request.body())

    @app.get("/control/state")
    async def state() -> dict[str, Any]:
        return stage.state()

    @app.post("/control/allow")
    async def allow(count: int) -> dict[str, Any]:
        return stage.allow(count)

    return app


def litestar_app(stage: Stage, *middleware: DefineMiddleware) -> ASGIApp:
    @post("/work", status_code=200)
    async def work(name: str, request: LitestarRequest[Any, Any, Any]) -> dict[str, Any]:
        return await stage.work(name, await request.body())

    @litestar_get("/control/state")
    async def state() -> dict[str, Any]:
        return stage.state()

    @post("/control/allow", status_code=200)
    async def allow(count: int) -> dict[str, Any]:
        return stage.allow(count)

    return Litestar([work, state, allow], middleware=middleware)


def litestar_wrapped(stage: Stage) -> ASGIApp:
    return FairQueue(litestar_app(stage), gate=stage.gate, key="x-tenant", exempt=is_control)


def litestar_middleware(stage: Stage) -> ASGIApp:
    # Litestar makes the middleware anew for every route: the gate is what makes them one queue.
    return litestar_app(stage, DefineMiddleware(FairQueue, gate=stage.gate, key="x-tenant", exempt=is_control))


BUILDERS: dict[str, Callable[[Stage], ASGIApp]] = {
    "starlette": starlette_app,
    "fastapi": fastapi_app,
    "litestar_wrapped": litestar_wrapped,
    "litestar_middleware": litestar_middleware,
}
