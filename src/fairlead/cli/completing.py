"""The command ``completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_WHERE = {
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc",
    "fish": "~/.config/fish/completions/fairlead.fish",
}


@click.command(name="completion")
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    r"""Print the script that completes commands in a shell.

    \b
    bash, zsh:  eval "$(fairlead completion bash)"
    fish:       fairlead completion fish | source
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    root = context.find_root()
    script = kind(root.command, {}, "fairlead", "_FAIRLEAD_COMPLETE")
    click.echo(script.source_template % script.source_vars())
