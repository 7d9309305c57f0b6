"""The command ``serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairlane.cli.config import SETTINGS_FILE, load_settings
from fairlane.cli.interaction import check_platform
from fairlane.cli.parameters import DURATION, PAIR
from fairlane.cli.session import Session, pass_session

FILE = click.Path(exists=True, dir_okay=False)


class ServeCommand(click.Command):
    """A command whose help ends with the settings that have no option of their own."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the other settings with their defaults."""
        from fairlane.cli.config import settings_by_name
        from fairlane.server.settings import ServerSettings

        options = {parameter.name for parameter in self.params} | {"grace_ms"}
        others = {name: value for name, value in settings_by_name(ServerSettings()).items() if name not in options}
        with formatter.section("Settings for --set, with their defaults"):
            formatter.write_dl([(name, "none" if value is None else str(value)) for name, value in others.items()])
        super().format_epilog(ctx, formatter)


@click.command(name="serve", cls=ServeCommand)
@SETTINGS_FILE
@click.option("--host", help="Address to listen on. Default: 127.0.0.1, reachable from this machine only.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on; 0 for any free port. Default: 7420.")
@click.option("--grpc-port", type=click.IntRange(0, 65_535), help="Port for gRPC. Default: no gRPC.")
@click.option("--data", metavar="FOLDER", help="Data folder; :memory: keeps everything in memory.")
@click.option("--store", metavar="URL", help="Store messages at postgresql://, s3:// or az:// instead of the folder.")
@click.option("--node", metavar="NAME", help="Join the cluster that shares the store, under this name.")
@click.option("--advertise", metavar="URL", help="Address at which clients and nodes reach this node.")
@click.option(
    "--durability",
    type=click.Choice(["fsync", "os"]),
    help="fsync survives power loss; os survives only a crash of the process. Default: fsync.",
)
@click.option("--auth/--no-auth", default=None, help="Require API keys. Default: unless bound to loopback.")
@click.option("--insecure", is_flag=True, default=None, help="Allow other machines without API keys and TLS.")
@click.option("--tls-certificate", type=FILE, help="Certificate of the server.")
@click.option("--tls-key", type=FILE, help="Private key of the certificate.")
@click.option("--tls-client-ca", type=FILE, help="CA that signs client certificates, which are then required.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Format of log lines.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Lowest level to log.")
@click.option("--grace", type=DURATION, help="How long a shutdown waits for acknowledgements.")
@click.option("--requests-per-second", type=click.IntRange(min=1), help="Request rate allowed per caller.")
@click.option("--requests-burst", type=click.IntRange(min=1), help="Requests allowed at once. Default: one second's.")
@click.option("--otlp-endpoint", metavar="URL", help="Where to send traces. Default: OTEL_EXPORTER_OTLP_ENDPOINT.")
@click.option("--reports", metavar="FOLDER", help="Folder whose tables and report the dashboard shows.")
@click.option("--set", "pairs", multiple=True, type=PAIR, help="Any other setting; repeatable.")
@pass_session
def serve_command(session: Session, /, path: Path | None, **options: Any) -> None:  # noqa: ANN401 - click's options
    """Run a server.

    Without options it listens on this machine only, stores its data in your state folder, and prints both locations.
    An interrupt or SIGTERM shuts it down gracefully.
    """
    check_platform("serve")
    from fairlane.server.run import serve

    flags = {name.replace("-", "_"): value for name, value in options.pop("pairs")}
    flags |= {name: value for name, value in options.items() if value is not None and name != "grace"}
    flags |= {} if options["grace"] is None else {"grace_ms": options["grace"]}
    flags.setdefault("data", session.endpoint.data)
    serve(load_settings(path, flags), echo=click.echo)
