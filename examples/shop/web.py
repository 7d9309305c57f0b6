"""The web service of the shop. Run it with: uvicorn web:web"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from jobs import Order, app, charge, report

from fairlane.errors import FairlaneError, MessageNotFound

web = FastAPI(lifespan=app.lifespan)


@web.exception_handler(FairlaneError)
async def refused(_: Request, error: FairlaneError) -> JSONResponse:
    status = 404 if isinstance(error, MessageNotFound) else 503  # within 5 seconds, also while the server is away
    return JSONResponse({"error": error.code, "cause": error.cause}, status)


@web.post("/orders", status_code=202)
async def order(order: Order) -> dict[str, str]:
    return {"job": (await charge.send(order)).id}


@web.post("/reports/{tenant}", status_code=202)
async def make_report(tenant: str, pages: int = 3) -> dict[str, str]:
    return {"job": (await report.send(tenant, pages=pages)).id}


@web.get("/jobs/{task}/{job_id}")
async def job(task: str, job_id: str) -> dict[str, Any]:
    handle = app.tasks[task].job(job_id)
    status = await handle.status()
    return {
        "status": status.status,
        "progress": status.progress and status.progress.fraction,
        "result": await handle.result() if status.status == "done" else None,
        "error": status.errors[-1].error if status.errors else None,
    }


@web.delete("/jobs/{task}/{job_id}", status_code=204)
async def cancel(task: str, job_id: str) -> None:
    await app.tasks[task].job(job_id).cancel("the customer cancelled it")
