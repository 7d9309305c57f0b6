"""The command ``outbox``."""

from __future__ import annotations

import asyncio

import click

from fairlane.cli.session import Endpoint, Session, pass_session

DATABASE = click.argument("database", metavar="DATABASE")


@click.group(name="outbox")
def outbox_command() -> None:
    """Move messages from a table in your own PostgreSQL database to queues.

    DATABASE is a PostgreSQL URL, such as postgresql://app@db.example/shop.
    """


@outbox_command.command(name="sql")
def sql_command() -> None:
    """Print the SQL that creates an outbox, for your migrations."""
    from fairlane.outbox.schema import INSTALL

    click.echo(INSTALL.strip())


@outbox_command.command(name="install")
@DATABASE
@pass_session
def install_command(session: Session, database: str) -> None:
    """Create an outbox in a database, or its missing parts."""
    asyncio.run(_install(database))
    session.answer({"installed": True}, "The outbox is installed in the schema fairlane_outbox.")


async def _install(database: str) -> None:
    from fairlane.outbox.tables import OutboxTables

    async with OutboxTables.connect(database) as tables:
        await tables.install()


@outbox_command.command(name="relay")
@DATABASE
@click.option("--once", is_flag=True, help="Move the messages that wait now, and exit.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Format of log lines.")
@pass_session
def relay_command(session: Session, database: str, *, once: bool, log_format: str) -> None:
    """Move messages from an outbox to the server, until interrupted.

    Several relays may run for one outbox: one is active, and another takes over when it ends.
    """
    from fairlane.logs import set_up_logs

    set_up_logs(log_format, "info")
    moved = asyncio.run(_relay(session.endpoint, database, once=once))
    if once:
        session.answer({"moved": moved}, f"Moved {moved} messages.")


async def _relay(endpoint: Endpoint, database: str, *, once: bool) -> int:
    from fairlane.client import AsyncClient
    from fairlane.outbox.relay import Relay

    if endpoint.data is not None:
        client = AsyncClient.embedded(endpoint.store)
    else:
        client = AsyncClient(endpoint.server, api_key=endpoint.api_key, tls=endpoint.tls())
    relay = Relay(database, client)
    try:
        if once:
            await client.connect()
            await relay.drain()
        else:
            await relay.connect()
            await relay.run()
    finally:
        await client.close()
    return relay.moved


@outbox_command.command(name="status")
@DATABASE
@pass_session
def status_command(session: Session, database: str) -> None:
    """Show how many messages wait in an outbox, and how many were rejected."""
    waiting, rejected = asyncio.run(_counts(database))
    session.answer({"waiting": waiting, "rejected": rejected}, f"waiting   {waiting}\nrejected  {rejected}")


async def _counts(database: str) -> tuple[int, int]:
    from fairlane.outbox.tables import OutboxTables

    async with OutboxTables.connect(database) as tables:
        return await tables.counts()
