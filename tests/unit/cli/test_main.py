"""The command as a whole: options, exit codes, errors, help, completion."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner

from fairlane import __version__
from fairlane.cli.durations import milliseconds, words
from fairlane.cli.main import SECTIONS, cli
from fairlane.cli.session import DEFAULT_SERVER, Connect, Place
from fairlane.errors import (
    Closed,
    Disconnected,
    FairlaneError,
    Forbidden,
    InternalError,
    QueueFull,
    StoreLocked,
    Unauthenticated,
)
from tests.unit.cli.shell import Shell

NAMES = [name for section in SECTIONS.values() for name in section]


def refusing(error: BaseException) -> Connect:
    """Return a way to no door."""

    def refuse(_: Place) -> NoReturn:
        raise error

    return refuse


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unauthenticated("Who?"), 1),
        (Forbidden("No."), 1),
        (InternalError("Oops."), 1),
        (PermissionError(13, "Denied"), 1),
        (Disconnected("Gone."), 3),
        (QueueFull("Full.", retry_after_ms=5), 3),
        (StoreLocked("Locked."), 3),
        (Closed("Closing."), 3),
        (ConnectionRefusedError("refused"), 3),
        (TimeoutError("late"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_have_exit_codes(error: BaseException, code: int) -> None:
    """Each kind of error ends with its code, words and a remedy, and never with a traceback."""
    result = CliRunner().invoke(cli, ["queue", "list"], obj=refusing(error))
    assert (result.exit_code, result.stdout) == (code, "")
    assert "Traceback" not in result.stderr
    if isinstance(error, Disconnected):
        assert "fairlane serve" in result.stderr
    elif isinstance(error, FairlaneError):
        assert result.stderr == f"error[{error.code}]: {error.cause}\nremedy: {error.remedy}\n"
    elif code != 130:
        assert "remedy: " in result.stderr


def test_a_missing_extra_is_named() -> None:
    """Whoever lacks a package is told which; a module of ours that is missing is a fault and no message."""
    missing = ModuleNotFoundError("No module named 'websockets'", name="websockets")
    result = CliRunner().invoke(cli, ["queue", "list"], obj=refusing(missing))
    assert (result.exit_code, "error[missing]: This needs the package websockets" in result.stderr) == (1, True)
    fault = ModuleNotFoundError("No module named 'fairlane.nope'", name="fairlane.nope")
    assert CliRunner().invoke(cli, ["queue", "list"], obj=refusing(fault)).exception is fault


def test_programs_learn_when_to_come_back() -> None:
    """An error as JSON has the time after which coming back helps."""
    refuse = refusing(QueueFull("Full.", retry_after_ms=5))
    result = CliRunner().invoke(cli, ["-ojson", "queue", "list"], obj=refuse)
    assert '"retry_after_ms": 5' in result.stderr


def test_the_server_is_where_it_is_said(shell: Shell) -> None:
    """An option wins over the environment, and that over the default."""
    shell.ok("queue", "list")
    shell.ok("queue", "list", env={"FAIRLANE_SERVER": "http://there", "FAIRLANE_API_KEY": "fl_secret"})
    shell.ok("--server", "http://here", "--api-key", "k", "queue", "list", env={"FAIRLANE_SERVER": "http://there"})
    shell.ok("--data", "/folder", "queue", "list")
    assert [(place.server, place.api_key) for place in shell.places[:3]] == [
        (DEFAULT_SERVER, None),
        ("http://there", "fl_secret"),
        ("http://here", "k"),
    ]
    assert shell.places[3].is_embedded
    assert "fl_secret" not in repr(shell.places[1])


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["--nope"],
        ["queue"],
        ["queue", "nope"],
        ["--output", "xml", "queue", "list"],
        ["peek"],
        ["completion"],
    ],
)
def test_wrong_usage_has_exit_code_two(shell: Shell, arguments: list[str]) -> None:
    """What is not understood is said in the same way as other errors."""
    outcome = shell.run(*arguments)
    assert (outcome.code, shell.places) == (2, [])


def test_wrong_usage_is_json_too(shell: Shell) -> None:
    """Whoever asked for JSON gets it, also where the options were not understood."""
    for asked in (["--output", "json"], ["--output=json"], ["-o", "json"], ["-ojson"]):
        assert shell.run(*asked, "--nope").error["code"] == "usage"
        assert shell.run(*asked, "nope").error["remedy"] == "See fairlane --help."


def test_an_option_of_all_commands_behind_one_is_told_where_it_belongs(shell: Shell) -> None:
    """Whoever names the server behind the command learns that it comes before."""
    outcome = shell.run("enqueue", "orders", "x", "--server", "http://127.0.0.1:1")
    assert outcome.code == 2
    assert "It comes before the command: fairlane --server ... enqueue ..." in outcome.err


def test_no_command_shows_which_there_are(shell: Shell) -> None:
    """People get the help, programs an error."""
    for arguments in ([], ["queue"]):
        outcome = shell.run(*arguments)
        assert (outcome.code, outcome.out, outcome.err.startswith("Usage: fairlane")) == (2, "", True)
        assert shell.run("-o", "json", *arguments).error["cause"] == "Missing command."


def test_errors_play_no_tricks_on_a_terminal() -> None:
    """What is not printable in what a server says is shown as an escape."""
    result = CliRunner().invoke(cli, ["queue", "list"], obj=refusing(Forbidden("\x1b[31mred")))
    assert result.stderr.startswith("error[forbidden]: \\x1b[31mred\n")


def test_the_version_is_told(shell: Shell) -> None:
    """The version is that of the package."""
    assert shell.ok("--version").out == f"fairlane {__version__}\n"


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all commands with the words that call them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("name", NAMES)
def test_the_list_of_commands_says_what_they_do(name: str) -> None:
    """The list, which is written apart so that it needs no import, has the first sentence of each command's help."""
    command = cli.get_command(click.Context(cli), name)
    told = {name: text for section in SECTIONS.values() for name, (_, text) in section.items()}
    assert command is not None
    assert command.help is not None
    assert command.help.split("\n\n")[0].replace("\n", " ").startswith(told[name].removesuffix("."))


def test_every_command_has_help(shell: Shell) -> None:
    """Every command and option says what it does."""
    for path, command in commands(cli):
        assert command.help, path
        assert [option.name for option in command.params if isinstance(option, click.Option) and not option.help] == []
        assert shell.ok(*path, "--help").out.startswith(f"Usage: fairlane {' '.join(path)} ")


def test_every_command_and_option_is_in_the_reference() -> None:
    """The reference names each command and each of its options."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()
    for path, command in commands(cli):
        if isinstance(command, click.Group):
            continue
        heading = f"### `fairlane {' '.join(path)}"
        assert heading in page, heading
        section = page.split(heading, 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
        for option in command.params:
            for flag in option.opts if isinstance(option, click.Option) else ():
                assert flag in section, (heading, flag)


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: Shell, shell_name: str) -> None:
    """Each script asks this command for completions."""
    out = shell.ok("completion", shell_name).out
    assert "_FAIRLANE_COMPLETE" in out
    assert "fairlane" in out


def test_commands_are_completed() -> None:
    """The command answers the questions of those scripts."""
    env = {"_FAIRLANE_COMPLETE": "bash_complete", "COMP_WORDS": "fairlane qu", "COMP_CWORD": "1"}
    result = CliRunner().invoke(cli, [], env=env, prog_name="fairlane")
    assert result.stdout == "plain,queue\n"


HEAVY = ("msgspec", "rich", "asyncio", "fairlane.assembly", "fairlane.client", "fairlane.server", "fairlane.model")


def test_help_imports_nothing_heavy() -> None:
    """Whoever asks for help does not wait for what it does not need."""
    code = (
        "import sys; from fairlane.cli.main import cli; sys.argv = ['fairlane', '--help']\n"
        "try: cli()\n"
        f"finally: print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == "[]\n"


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("0", 0),
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1.5s", 1_500),
        ("1h30m", 5_400_000),
        ("0.001s", 1),
        ("0s", 0),
    ],
)
def test_durations(text: str, span_ms: int) -> None:
    """A number with a unit is a span, and several are their sum."""
    assert milliseconds(text) == span_ms


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "5x", "5S", "1e3s", "5s ", "\uff10s", "0.5ms", "inf"])
def test_no_durations(text: str) -> None:
    """All else is refused with an example."""
    with pytest.raises(ValueError, match="duration"):
        milliseconds(text)


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1_500, "1.5s"),
        (2_000, "2s"),
        (12_345, "12s"),
        (90_000, "1m30s"),
        (3_600_000, "1h"),
        (90_000_000, "1d1h"),
        (86_400_000, "1d"),
        (-5, "-5ms"),
    ],
)
def test_durations_in_words(span_ms: int, text: str) -> None:
    """Spans are shown in one or two units."""
    assert words(span_ms) == text
