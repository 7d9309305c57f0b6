"""The command ``call``: any verb, with its request as JSON."""

from __future__ import annotations

import click
import msgspec

from fairlane.cli.formatting import as_json
from fairlane.cli.session import Session, pass_session
from fairlane.errors import InvalidArgument
from fairlane.verbs.table import VERBS


@click.command(
    name="call",
    epilog="""\b
Examples:
  fairlane call stats '{"queue": "orders", "keys_max": 10}'
  fairlane call readers
""",
)
@click.argument("verb", type=click.Choice(list(VERBS)), metavar="VERB")
@click.argument("request", default="{}")
@pass_session
def call_command(session: Session, verb: str, request: str) -> None:
    """Call a verb and print its answer as JSON.

    REQUEST is a JSON object with the fields of the verb's request; payloads in it are base64. The HTTP reference lists
    all verbs.
    """
    try:
        made = msgspec.json.decode(request, type=VERBS[verb].request)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"Invalid {verb} request: {error}.") from error
    with session.broker() as broker:
        found = broker.call(made)
    session.answer(found, as_json(found))
