"""The command ``serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairlane.cli.interaction import check_platform
from fairlane.cli.server_settings import server_options, settings_by_name, settings_of
from fairlane.cli.session import Session, pass_session


class ServeCommand(click.Command):
    """A command whose help ends with the settings that have no option of their own."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the other settings with their defaults."""
        from fairlane.server.settings import ServerSettings

        options = {parameter.name for parameter in self.params} | {"grace_ms"}
        others = {name: value for name, value in settings_by_name(ServerSettings()).items() if name not in options}
        with formatter.section("Settings for --set, with their defaults"):
            formatter.write_dl([(name, "none" if value is None else str(value)) for name, value in others.items()])
        super().format_epilog(ctx, formatter)


@click.command(name="serve", cls=ServeCommand)
@server_options
@pass_session
def serve_command(session: Session, /, path: Path | None, **options: Any) -> None:  # noqa: ANN401 - click's options
    """Run a server.

    Without options it listens on this machine only, stores its data in your state folder, and prints both locations.
    An interrupt or SIGTERM shuts it down gracefully.
    """
    check_platform("serve")
    from fairlane.server.run import serve

    serve(settings_of(session, path, options), echo=click.echo)
