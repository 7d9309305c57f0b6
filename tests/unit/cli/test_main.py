"""Tests of the command as a whole: options, exit codes, errors, help and completion."""

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
from fairlane.cli.formatting import duration
from fairlane.cli.interaction import check_platform
from fairlane.cli.main import SECTIONS, cli, with_output_first
from fairlane.cli.session import DEFAULT_SERVER, Connect, Endpoint
from fairlane.errors import (
    Closed,
    Disconnected,
    FairlaneError,
    Forbidden,
    InternalError,
    InvalidArgument,
    QueueFull,
    StoreFailed,
    StoreLocked,
    Unauthenticated,
)
from fairlane.model.durations import milliseconds
from fairlane.server.settings import default_data
from tests.unit.cli.shell import Shell

NAMES = [name for section in SECTIONS.values() for name in section]


def refusing(error: BaseException) -> Connect:
    """Return a connect function that raises an error."""

    def refuse(_: Endpoint) -> NoReturn:
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
    """Each kind of error ends with its exit code, a cause and a remedy, and never with a traceback."""
    result = CliRunner().invoke(cli, ["queue", "list"], obj=refusing(error))
    assert (result.exit_code, result.stdout) == (code, "")
    assert "Traceback" not in result.stderr
    if isinstance(error, Disconnected):
        assert "fairlane serve" in result.stderr
    elif isinstance(error, Unauthenticated):
        assert "--api-key or FAIRLANE_API_KEY" in result.stderr
    elif isinstance(error, FairlaneError):
        assert result.stderr == f"error[{error.code}]: {error.cause}\nremedy: {error.remedy}\n"
    elif code != 130:
        assert "remedy: " in result.stderr


def test_a_missing_extra_is_named() -> None:
    """A missing package is named with its extra; a missing module of our own is a bug and raises."""
    missing = ModuleNotFoundError("No module named 'websockets'", name="websockets")
    result = CliRunner().invoke(cli, ["queue", "list"], obj=refusing(missing))
    cause = "error[missing]: This command needs the Python package websockets, which is not installed."
    remedy = "remedy: Install the extra that brings it: fairlane[client]."
    assert (result.exit_code, result.stderr) == (1, f"{cause}\n{remedy}\n")
    told = ImportError("The server needs uvicorn and websockets: install fairlane[server].")
    result = CliRunner().invoke(cli, ["queue", "list"], obj=refusing(told))
    cause = "error[missing]: The server needs uvicorn and websockets."
    assert result.stderr == f"{cause}\nremedy: Install the extra that brings it: fairlane[server].\n"
    fault = ModuleNotFoundError("No module named 'fairlane.nope'", name="fairlane.nope")
    assert CliRunner().invoke(cli, ["queue", "list"], obj=refusing(fault)).exception is fault


@pytest.mark.parametrize("package", ["httpx", "uvicorn"])
def test_a_server_without_its_packages_names_its_extra(package: str) -> None:
    """Whichever package is missing, the remedy is the extra with all of them, not a smaller one."""
    program = f"import sys; sys.modules[{package!r}] = None; from fairlane.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "serve"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("remedy: Install the extra that brings it: fairlane[server].\n")
    assert len(done.stderr.splitlines()) == 2


def test_json_errors_have_a_retry_delay() -> None:
    """An error as JSON has the time to wait before the next try."""
    refuse = refusing(QueueFull("Full.", retry_after_ms=5))
    result = CliRunner().invoke(cli, ["-ojson", "queue", "list"], obj=refuse)
    assert '"retry_after_ms": 5' in result.stderr


def test_the_server_comes_from_options_environment_or_default(shell: Shell) -> None:
    """An option overrides the environment, which overrides the default."""
    shell.ok("queue", "list")
    shell.ok("queue", "list", env={"FAIRLANE_SERVER": "http://there", "FAIRLANE_API_KEY": "fl_secret"})
    shell.ok("--server", "http://here", "--api-key", "k", "queue", "list", env={"FAIRLANE_SERVER": "http://there"})
    shell.ok("--data", "/folder", "queue", "list")
    assert [(endpoint.server, endpoint.api_key) for endpoint in shell.endpoints[:3]] == [
        (DEFAULT_SERVER, None),
        ("http://there", "fl_secret"),
        ("http://here", "k"),
    ]
    assert shell.endpoints[3].is_embedded
    assert "fl_secret" not in repr(shell.endpoints[1])


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
    """Usage errors look like other errors, and no broker is called."""
    outcome = shell.run(*arguments)
    assert (outcome.code, shell.endpoints) == (2, [])


def test_wrong_usage_is_json_too(shell: Shell) -> None:
    """With --output json, usage errors are JSON, too."""
    for asked in (["--output", "json"], ["--output=json"], ["-o", "json"], ["-ojson"]):
        assert shell.run(*asked, "--nope").error["code"] == "usage"
        assert shell.run(*asked, "nope").error["remedy"] == "See fairlane --help."


def test_a_global_option_after_the_command_gets_a_hint(shell: Shell) -> None:
    """The remedy says that the option belongs before the command."""
    outcome = shell.run("enqueue", "orders", "x", "--server", "http://127.0.0.1:1")
    assert outcome.code == 2
    assert "Write it before the command: fairlane --server ... enqueue ..." in outcome.err


def test_without_a_command_the_help_is_shown(shell: Shell) -> None:
    """The output is the help, or with --output json an error."""
    for arguments in ([], ["queue"]):
        outcome = shell.run(*arguments)
        assert (outcome.code, outcome.out, outcome.err.startswith("Usage: fairlane")) == (2, "", True)
        assert shell.run("-o", "json", *arguments).error["cause"] == "Missing command."


def test_errors_contain_no_terminal_escapes() -> None:
    """Characters from the server that are not printable are shown as escapes."""
    result = CliRunner().invoke(cli, ["queue", "list"], obj=refusing(Forbidden("\x1b[31mred")))
    assert result.stderr.startswith("error[forbidden]: \\x1b[31mred\n")


def test_the_version_is_printed(shell: Shell) -> None:
    """The version is that of the package."""
    assert shell.ok("--version").out == f"fairlane {__version__}\n"


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all commands with their paths."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("name", NAMES)
def test_the_list_of_commands_says_what_they_do(name: str) -> None:
    """The list of commands repeats the first sentence of each command's help, without importing the command."""
    command = cli.get_command(click.Context(cli), name)
    told = {name: text for section in SECTIONS.values() for name, (_, text) in section.items()}
    assert command is not None
    assert command.help is not None
    assert command.help.split("\n\n")[0].replace("\n", " ").startswith(told[name].removesuffix("."))


def test_every_command_has_help(shell: Shell) -> None:
    """Every command and every option has a help text."""
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
    """Each script calls this command for completions."""
    out = shell.ok("completion", shell_name).out
    assert "_FAIRLANE_COMPLETE" in out
    assert "fairlane" in out


def test_commands_are_completed() -> None:
    """The command answers the completion scripts."""
    env = {"_FAIRLANE_COMPLETE": "bash_complete", "COMP_WORDS": "fairlane qu", "COMP_CWORD": "1"}
    result = CliRunner().invoke(cli, [], env=env, prog_name="fairlane")
    assert result.stdout == "plain,queue\n"


HEAVY = ("msgspec", "rich", "asyncio", "fairlane.assembly", "fairlane.client", "fairlane.server", "fairlane.model")


def test_help_imports_nothing_heavy() -> None:
    """The help imports no module that it does not need, so that it is fast."""
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
    """A number with a unit is a duration, and several are their sum."""
    assert milliseconds(text) == span_ms


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "5x", "5S", "1e3s", "5s ", "\uff10s", "0.5ms", "inf"])
def test_invalid_durations_are_refused(text: str) -> None:
    """The error shows an example."""
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
def test_durations_are_formatted(span_ms: int, text: str) -> None:
    """Durations are shown in one or two units."""
    assert duration(span_ms) == text


@pytest.mark.parametrize(
    "arguments",
    [
        ["-o", "json", "queue", "list"],
        ["queue", "-o", "json", "list"],
        ["queue", "list", "-o", "json"],
        ["queue", "list", "--output=json"],
        ["queue", "list", "-ojson"],
        ["queue", "list", "--output", "json"],
    ],
)
def test_the_output_format_may_be_anywhere(shell: Shell, arguments: list[str]) -> None:
    """JSON comes out wherever the option is written."""
    assert [view["name"] for view in shell.ok(*arguments).json] == ["jobs", "jobs.dlq"]


def test_what_is_no_output_format_stays_where_it_is() -> None:
    """Arguments after two dashes, and other values, are left to the command."""
    assert with_output_first(["enqueue", "jobs", "--", "-o", "json"]) == ["enqueue", "jobs", "--", "-o", "json"]
    assert with_output_first(["enqueue", "jobs", "-o", "xml"]) == ["enqueue", "jobs", "-o", "xml"]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (Disconnected("Cannot connect to wss://a: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed."), "--tls-ca"),
        (Disconnected("Cannot connect to wss://a: [SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired."), "Renew"),
        (
            Disconnected("Cannot connect to wss://a: [SSL: CERTIFICATE_VERIFY_FAILED] certificate is not yet valid."),
            "clock",
        ),
        (
            Disconnected("Cannot connect to wss://a: [SSL: CERTIFICATE_VERIFY_FAILED] Hostname mismatch."),
            "address that the certificate is for",
        ),
        (Disconnected("Cannot connect to https://a: TLSV13_ALERT_CERTIFICATE_REQUIRED."), "--tls-cert and"),
        (Disconnected("Cannot connect to wss://a: did not receive a valid HTTP response."), "--tls-cert and"),
        (Disconnected("Cannot connect to ws://a: did not receive a valid HTTP response."), "with https://"),
        (Disconnected("Cannot connect to wss://a: [SSL: WRONG_VERSION_NUMBER] wrong version."), "with http://"),
        (InvalidArgument("Cannot listen on 127.0.0.1:7420: [Errno 98] Address already in use."), "with --port"),
        (InvalidArgument("Invalid server address 'localhost:7420'; expected a URL."), "Write the scheme"),
        (InvalidArgument("Cannot listen on no.example:7420: [Errno -2] Name or service not known."), "with --host"),
        (InvalidArgument("0.0.0.0 is not a loopback address: set tls_certificate and tls_key."), "--tls-certificate"),
        (InvalidArgument("0.0.0.0 is not a loopback address: require API keys (auth)."), "--insecure"),
        (InvalidArgument("A store at postgresql:// needs psycopg: install fairlane[postgres]."), "fairlane[postgres]"),
        (StoreFailed("Cannot use the folder of the store: [Errno 30] Read-only file system."), "permissions"),
        (StoreLocked("Another process has the store open: data/LOCK is locked."), "with --server"),
    ],
)
def test_remedies_name_what_helps(error: FairlaneError, remedy: str) -> None:
    """Errors of connections and ports name the option that helps, and nothing that does not."""
    result = CliRunner().invoke(cli, ["queue", "list"], obj=refusing(error))
    said = result.stderr.partition("remedy: ")[2]
    assert remedy in said
    assert "dedup" not in said


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_windows_is_told_why(command: str) -> None:
    """Where there are no POSIX signals, the commands that need them say so in one line."""
    with pytest.raises(click.UsageError, match="Run it in WSL or a container"):
        check_platform(command, "win32")
    check_platform(command, "linux")


def test_the_file_of_a_wrong_setting_is_named(shell: Shell, tmp_path: Path) -> None:
    """Every error in a settings file names the file."""
    file = tmp_path / "settings.toml"
    causes = {
        'port = "x"': f"port in {file} must be",
        "prot = 1": f"Unknown setting 'prot' in {file}. Did you mean 'port'?",
        "port = ": f"{file} is not valid TOML",
    }
    for text, cause in causes.items():
        file.write_text(text)
        assert cause in shell.run("config", "check", "--config", str(file)).err


def test_the_settings_shown_are_those_that_take_effect(shell: Shell, tmp_path: Path) -> None:
    """Authentication is shown as it will be, not as it was set."""
    file = tmp_path / "settings.toml"
    file.write_text('host = "127.0.0.1"')
    assert shell.ok("config", "check", "--config", str(file), "-o", "json").json["auth"] is False


def test_the_data_folder_follows_the_platform() -> None:
    """macOS keeps data in the Library, unless the environment names another place."""
    home = {"HOME": "/home/me"}
    assert default_data(home, "linux") == "/home/me/.local/state/fairlane"
    assert default_data(home, "darwin") == "/home/me/Library/Application Support/fairlane"
    assert default_data(home | {"XDG_STATE_HOME": "/state"}, "darwin") == "/state/fairlane"
