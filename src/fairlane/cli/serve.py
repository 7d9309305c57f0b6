"""The command ``serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairlane.cli.durations import DURATION
from fairlane.cli.parameters import PAIR
from fairlane.cli.session import Session, pass_session
from fairlane.cli.settings import SETTINGS_FILE, load_settings

FILE = click.Path(exists=True, dir_okay=False)


class ServeCommand(click.Command):
    """A command whose help ends with the settings that have no flag of their own."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the other settings with their defaults."""
        from fairlane.cli.settings import facts_of
        from fairlane.server.settings import ServerSettings

        flags = {parameter.name for parameter in self.params} | {"grace_ms"}
        others = {name: value for name, value in facts_of(ServerSettings()).items() if name not in flags}
        with formatter.section("Settings for --set"):
            formatter.write_dl([(name, "none" if value is None else str(value)) for name, value in others.items()])
        super().format_epilog(ctx, formatter)


@click.command(name="serve", cls=ServeCommand)
@SETTINGS_FILE
@click.option("--host", help="The address to listen on; by default only this machine can reach it.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port to listen on; 0 for any that is free.")
@click.option("--grpc-port", type=click.IntRange(0, 65_535), help="The port for gRPC; without it there is none.")
@click.option("--data", metavar="FOLDER", help="The folder of the data; :memory: keeps everything in memory.")
@click.option("--store", metavar="URL", help="Keep messages in postgresql://... or s3://... instead of the folder.")
@click.option("--node", metavar="NAME", help="Be a node of the cluster that shares the store, under this name.")
@click.option("--advertise", metavar="URL", help="Where others reach this node; by default where it listens.")
@click.option("--durability", type=click.Choice(["fsync", "os"]), help="Survive power loss, or only the process.")
@click.option("--auth/--no-auth", default=None, help="Ask for API keys; by default beyond this machine only.")
@click.option("--insecure", is_flag=True, default=None, help="Listen beyond this machine without keys and TLS.")
@click.option("--tls-certificate", type=FILE, help="The certificate of the server.")
@click.option("--tls-key", type=FILE, help="Its key.")
@click.option("--tls-client-ca", type=FILE, help="The certificates that vouch for clients, who then must have one.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Lines for people or machines.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="The least that is logged.")
@click.option("--grace", type=DURATION, help="How long to wait for acks when going down.")
@click.option("--requests-per-second", type=click.IntRange(min=1), help="How often one caller may ask.")
@click.option("--requests-burst", type=click.IntRange(min=1), help="How often at once; by default a second's worth.")
@click.option("--otlp-endpoint", metavar="URL", help="Where to send traces; as OTEL_EXPORTER_OTLP_ENDPOINT by default.")
@click.option("--reports", metavar="FOLDER", help="Whose tables and report the dashboard shows.")
@click.option("--set", "pairs", multiple=True, type=PAIR, help="Any other setting; may be repeated.")
@pass_session
def serve_command(session: Session, /, path: Path | None, **options: Any) -> None:  # noqa: ANN401 - click's
    """Run a server.

    Without options it listens on this machine only, keeps its data in your state folder, and says where everything is.
    Interrupt it, or send it SIGTERM, and it goes down in good order.
    """
    from fairlane.server.run import serve

    flags = {name.replace("-", "_"): value for name, value in options.pop("pairs")}
    flags |= {name: value for name, value in options.items() if value is not None and name != "grace"}
    flags |= {} if options["grace"] is None else {"grace_ms": options["grace"]}
    flags.setdefault("data", session.place.data)
    serve(load_settings(path, flags), echo=click.echo)
