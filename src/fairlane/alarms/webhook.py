"""Tells a webhook about alarms, with one request for all that is new."""

from __future__ import annotations

from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

import msgspec

from fairlane.alarms.alarm import Alarm
from fairlane.alarms.board import News, Resolved
from fairlane.errors import Disconnected, InvalidArgument
from fairlane.wire.tls import client_context

TIMEOUT_S: Final = 10.0
_SUCCESS = range(200, 300)


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request, as JSON.

    Attributes:
        version: of these fields.
        text: all of it in words, a line for each alarm. Slack and its like show this field.
        raised: new alarms.
        resolved: alarms that are over, each with the instant.
    """

    version: int = 1
    text: str
    raised: tuple[Alarm, ...]
    resolved: tuple[Resolved, ...]


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where to send alarms.

    Attributes:
        url: an ``http`` or ``https`` address. It often has a secret in it, so it is never shown.
        timeout_s: how long the other side may take.
    """

    url: str = field(repr=False)
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgument("Invalid webhook. Use a URL that begins with http:// or https:// and names a host.")

    def tell(self, news: News) -> None:
        """Send news.

        Raises:
            Disconnected: the other side does not answer, or not with success.
        """
        notice = Notice(text="\n".join(news.lines()), raised=news.raised, resolved=news.resolved)
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        connection = (
            HTTPSConnection(host, parts.port, timeout=self.timeout_s, context=client_context())
            if parts.scheme == "https"
            else HTTPConnection(host, parts.port, timeout=self.timeout_s)
        )
        path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        try:
            connection.request("POST", path, msgspec.json.encode(notice), {"content-type": "application/json"})
            status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            raise Disconnected(f"The webhook at {host} does not answer: {error!r:.200}.") from error
        finally:
            connection.close()
        if status not in _SUCCESS:
            raise Disconnected(f"The webhook at {host} answered with status {status}.")
