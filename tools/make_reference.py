"""Write the generated parts of the reference pages.

Each part stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` in its page; the text around it is written by
hand. With ``--check`` the tool changes nothing and exits with 1 if a page is out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import grpc

from fairlane import errors
from fairlane.cli.main import SECTIONS, cli
from fairlane.errors import FairlaneError, RequestError, UnavailableError
from fairlane.verbs.table import VERBS
from fairlane.wire.errors import HTTP_STATUS, grpc_status

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
_GRPC_NAMES = {status.value[0]: status.name for status in grpc.StatusCode}


def _leaves(branch: type[FairlaneError]) -> list[type[FairlaneError]]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, branch)]
    return [kind for kind in kinds if "code" in vars(kind)]


def _summary(kind: type[FairlaneError]) -> str:
    """Return the first paragraph of a class's docstring on one line."""
    return inspect.getdoc(kind).split("\n\n")[0].replace("\n", " ")  # type: ignore[union-attr] # a test wants docstrings


def _error_table(kinds: list[type[FairlaneError]]) -> str:
    lines = ["| error | code | HTTP | gRPC | meaning | remedy |", "|---|---|---|---|---|---|"]
    for kind in kinds:
        http, name = HTTP_STATUS[kind.code], _GRPC_NAMES[grpc_status(kind.code)]
        lines.append(f"| `{kind.__name__}` | `{kind.code}` | {http} | {name} | {_summary(kind)} | {kind.remedy} |")
    return "\n".join(lines)


def request_errors() -> str:
    """Return the table of the errors that a caller can correct, bugs included."""
    return _error_table([*_leaves(RequestError), errors.InternalError])


def unavailable_errors() -> str:
    """Return the table of the errors that may go away by themselves."""
    return _error_table(_leaves(UnavailableError))


def _leaf_commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command, or the commands of a group, with their full names."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    for part, inner in command.commands.items():
        yield from _leaf_commands(f"{name} {part}", inner)


def _arguments(command: click.Command, context: click.Context) -> str:
    return "".join(
        f" {parameter.make_metavar(context)}" for parameter in command.params if isinstance(parameter, click.Argument)
    )


def _option_row(option: click.Option, context: click.Context) -> str:
    flags = [*option.opts, *option.secondary_opts]
    if not option.is_flag:
        flags[0] += f" {_value_name(option.make_metavar(context))}"
    notes = [option.help or ""]
    if option.show_default is True and option.default is not None:
        notes.append(f"Default: `{option.default}`.")
    if option.envvar is not None:
        notes.append(f"Environment: `{option.envvar}`.")
    if option.required:
        notes.append("Required.")
    return f"| {', '.join(f'`{flag}`' for flag in flags)} | {' '.join(notes)} |"


def _value_name(metavar: str) -> str:
    """Return the placeholder of an option's value: a number is N, and the bars between choices are escaped."""
    if metavar.removesuffix(" RANGE") in ("INTEGER", "FLOAT"):
        return "N"
    choices = metavar[1:-1] if metavar.startswith("[") else metavar
    return choices.replace("|", r"\|").replace("FOREVER", "forever")


def _command_section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"fairlane {name}")
    paragraphs = [" ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n")]
    text = [f"### `fairlane {name}{_arguments(command, context)}`", *paragraphs]
    if options := [parameter for parameter in command.params if isinstance(parameter, click.Option)]:
        text.append("\n".join(["| option | meaning |", "|---|---|", *(_option_row(one, context) for one in options)]))
    if command.epilog:
        text.append("```text\n" + command.epilog.replace("\b\n", "").strip() + "\n```")
    return "\n\n".join(text)


def global_options() -> str:
    """Return the table of the options before the command."""
    context = click.Context(cli, info_name="fairlane")
    options = [parameter for parameter in cli.params if isinstance(parameter, click.Option)]
    return "\n".join(["| option | meaning |", "|---|---|", *(_option_row(one, context) for one in options)])


def commands() -> str:
    """Return a section for each command, under the topics of the help."""
    context, text = click.Context(cli), []
    for title, section in SECTIONS.items():
        text.append(f"## {title}")
        for name in section:
            command = cli.get_command(context, name)
            if command is not None:
                text += [_command_section(*leaf) for leaf in _leaf_commands(name, command)]
    return "\n\n".join(text)


def verbs() -> str:
    """Return the table of all verbs."""
    lines = [
        "| path under `/v1` | verb on the stream | gRPC method | what it does | right |",
        "|---|---|---|---|---|",
    ]
    for verb in VERBS.values():
        paths = ", ".join(f"`{path}`" for path in (verb.path, *verb.aliases))
        summary = inspect.getdoc(verb.request).partition("\n")[0]  # type: ignore[union-attr] # a test wants docstrings
        right = verb.right if verb.about == "queue" else f"{verb.right} on `*`"
        lines.append(f"| {paths} | `{verb.name}` | `{verb.service}.{verb.method}` | {summary} | {right} |")
    return "\n".join(lines)


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "request errors": ("errors.md", request_errors),
    "unavailable errors": ("errors.md", unavailable_errors),
    "verbs": ("http.md", verbs),
    "options": ("cli.md", global_options),
    "commands": ("cli.md", commands),
}
"""For each generated part its page and the function that returns its text."""


def with_part(page: str, name: str, text: str) -> str:
    """Return a page with the text of one generated part replaced."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _match: f"{begin}\n\n{text}\n\n{end}", page)


def main() -> int:
    """Write the parts, or check them."""
    stale = 0
    for name, (file, make) in PARTS.items():
        path = REFERENCE / file
        page = path.read_text(encoding="utf-8")
        made = with_part(page, name, make())
        if made == page:
            continue
        if "--check" in sys.argv:
            print(f'docs/reference/{file}: the part "{name}" is out of date; run tools/make_reference.py.')
            stale = 1
        else:
            path.write_text(made, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
