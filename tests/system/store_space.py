"""How many bytes a store takes, as the technology that keeps it counts them: nothing here asks the store itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import LiteralString

import psycopg
from obstore.store import AzureStore, S3Store

from tests.conftest import BUCKET
from tests.kit.servers.azurite import AzuriteServer
from tests.kit.servers.stores import PostgresServer, S3Server

_IN_POSTGRES: LiteralString = """
SELECT (SELECT COALESCE(SUM(OCTET_LENGTH(page)), 0) FROM fairlane_pages WHERE STARTS_WITH(namespace, %(prefix)s))
     + (SELECT COALESCE(SUM(OCTET_LENGTH(body)), 0) FROM fairlane_bodies WHERE STARTS_WITH(namespace, %(prefix)s))"""


def bytes_in_folder(folder: Path) -> int:
    """Return the size of all files in a folder."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(path, name).stat().st_size
            except FileNotFoundError:
                continue  # the store deletes files meanwhile
    return total


def bytes_in_postgres(server: PostgresServer, prefix: str) -> int:
    """Return the size of the rows of all namespaces with a prefix; in a cluster each group has one."""
    with psycopg.connect(server.url) as connection:
        row = connection.execute(_IN_POSTGRES, {"prefix": prefix}).fetchone()
    assert row is not None
    return int(row[0])


def bytes_in_bucket(server: S3Server | AzuriteServer, prefix: str) -> int:
    """Return the size of all objects under a prefix of the bucket for tests, whether the store knows of them or not."""
    if isinstance(server, S3Server):
        bucket: S3Store | AzureStore = S3Store(
            BUCKET,
            endpoint=server.endpoint,
            region="us-east-1",
            skip_signature=True,
            client_options={"allow_http": True},
        )
    else:
        bucket = AzureStore(BUCKET, endpoint=server.endpoint, client_options={"allow_http": True})
    return sum(meta["size"] for page in bucket.list(f"{prefix}/") for meta in page)
