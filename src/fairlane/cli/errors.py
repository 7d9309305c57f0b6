"""How a command fails: exit codes, and errors for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import click

from fairlane.cli.formatting import printable
from fairlane.errors import Closed, Disconnected, FairlaneError, UnavailableError

OK: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
UNAVAILABLE: Final = 3
NOTHING: Final = 4
INTERRUPTED: Final = 130
_NO_SERVER: Final = "Start a server with fairlane serve, or name another with --server."


class Stop(click.exceptions.Exit):
    """The command is over, with this exit code; whatever there was to say has been said."""


def exit_code_of(error: BaseException) -> int:
    """Return the exit code that an error means."""
    match error:
        case click.ClickException():
            return error.exit_code
        case UnavailableError() | Closed() | ConnectionError() | TimeoutError():
            return UNAVAILABLE
    return REFUSED


def facts_of(error: BaseException) -> dict[str, object]:
    """Return an error as programs read it."""
    match error:
        case FairlaneError():
            remedy = f"{_NO_SERVER} {error.remedy}" if isinstance(error, Disconnected) else error.remedy
            facts: dict[str, object] = {"code": error.code, "cause": error.cause, "remedy": remedy}
            retry_after_ms = getattr(error, "retry_after_ms", None)
            return facts if retry_after_ms is None else facts | {"retry_after_ms": retry_after_ms}
        case click.ClickException():
            return {"code": _click_code(error), "cause": error.format_message(), "remedy": _remedy_of(error)}
        case ConnectionError() | TimeoutError():
            return {"code": "disconnected", "cause": f"The server can't be reached: {error}.", "remedy": _NO_SERVER}
        case ModuleNotFoundError():
            remedy = "Install it; the extras of fairlane bring what they need."
            return {
                "code": "missing",
                "cause": f"This needs the package {error.name}, which is missing.",
                "remedy": remedy,
            }
        case OSError():
            return {"code": "file", "cause": f"{error}.", "remedy": "Look after the file and its folder."}
    return {"code": "internal", "cause": f"{error}", "remedy": "Report it."}


def _remedy_of(error: click.ClickException) -> str:
    """Return what to do about what was not understood; many write options of all commands behind one of them."""
    context: click.Context | None = getattr(error, "ctx", None)
    if context is None:
        return "Correct it and call again."
    root = context.find_root()
    options = {name for parameter in root.command.params for name in parameter.opts}
    if isinstance(error, click.NoSuchOption) and context is not root and error.option_name in options:
        command = context.command_path.removeprefix(root.command_path).strip()
        return f"It comes before the command: {root.command_path} {error.option_name} ... {command} ..."
    return f"See {context.command_path} --help."


def _click_code(error: click.ClickException) -> str:
    return "usage" if isinstance(error, click.UsageError) else "file"


def report(error: BaseException, *, is_json: bool) -> None:
    """Say on standard error what went wrong, and what to do; to whoever named no command, which there are."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        if not is_json:
            error.show()
            return
        error = click.UsageError("Missing command.", error.ctx)
    tell(facts_of(error), is_json=is_json)


def tell(facts: Mapping[str, object], *, is_json: bool) -> None:
    """Write the facts of an error to standard error."""
    if is_json:
        click.echo(json.dumps({"error": facts}, ensure_ascii=False), err=True)
        return
    head = click.style(f"error[{facts['code']}]", fg="red", bold=True)
    click.echo(f"{head}: {printable(str(facts['cause']))}", err=True)
    click.echo(f"remedy: {facts['remedy']}", err=True)


def wants_json(error: BaseException, arguments: list[str]) -> bool:
    """Tell whether whoever called wants JSON, also where its options were not understood."""
    context = getattr(error, "ctx", None)
    if context is not None and "output" in context.find_root().params:
        return bool(context.find_root().params["output"] == "json")
    pairs = pairwise(arguments)
    return (
        "--output=json" in arguments
        or "-ojson" in arguments
        or any(name in ("--output", "-o") and value == "json" for name, value in pairs)
    )
