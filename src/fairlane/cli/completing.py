"""The command ``completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_WHERE = {
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc",
    "fish": "~/.config/fish/completions/fairlane.fish",
}


@click.command(name="completion")
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    r"""Print the script that completes commands in a shell.

    \b
    bash, zsh:  eval "$(fairlane completion bash)"
    fish:       fairlane completion fish | source
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    root = context.find_root()
    script = kind(root.command, {}, "fairlane", "_FAIRLANE_COMPLETE")
    click.echo(script.source_template % script.source_vars())
