"""Tracebacks of handlers that failed, as their authors want to read them."""

from __future__ import annotations

from types import TracebackType


def from_handler(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error without the worker's calls around middleware and handler.

    Those calls say nothing about the error. Everything that the handler itself called stays, libraries included.
    """
    frames: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    theirs = [at for at, frame in enumerate(frames) if not _is_ours(frame)]
    if not theirs:
        return error.__traceback__
    made = None
    for at, frame in reversed(list(enumerate(frames))):
        if at > theirs[-1] or not _is_ours(frame):
            made = TracebackType(made, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return made


def _is_ours(frame: TracebackType) -> bool:
    name: str = frame.tb_frame.f_globals.get("__name__", "")
    return name == "fairlane.tasks.dispatch" or name.startswith("fairlane.worker.")
