"""An address says where tables are and in which format, or it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.errors import InvalidArgument
from fairlane.lakehouse.address import TablesAddress, parse_address


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/data/tables", TablesAddress("parquet", "/data/tables")),
        ("/data/what?", TablesAddress("parquet", "/data/what?")),
        ("delta:/data/lake", TablesAddress("delta", "/data/lake")),
        ("parquet:/data/lake", TablesAddress("parquet", "/data/lake")),
        ("s3://bucket/a/b/", TablesAddress("parquet", "s3://bucket/a/b")),
        ("delta:gs://bucket", TablesAddress("delta", "gs://bucket")),
        (
            "s3://b/t?region=eu-west-1&endpoint=http://localhost:9000&anonymous=true",
            TablesAddress(
                "parquet",
                "s3://b/t",
                (("anonymous", "true"), ("endpoint", "http://localhost:9000"), ("region", "eu-west-1")),
            ),
        ),
        ("az://container/t?account=mine", TablesAddress("parquet", "az://container/t", (("account", "mine"),))),
        ("iceberg:/data/lake", TablesAddress("iceberg", "/data/lake")),
        (
            "iceberg:s3://b/t?catalog=prod&namespace=queues",
            TablesAddress("iceberg", "s3://b/t", (("catalog", "prod"), ("namespace", "queues"))),
        ),
    ],
)
def test_an_address_is_a_format_a_root_and_options(text: str, found: TablesAddress) -> None:
    """Each spelling means one thing, and what an address is printed as means the same."""
    assert parse_address(text) == found
    assert parse_address(str(found)) == found


def test_a_relative_folder_is_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Executors have other working directories than the driver, so the folder is made absolute."""
    monkeypatch.chdir(tmp_path)
    assert parse_address("delta:lake").root == str(tmp_path / "lake")
    assert parse_address(Path("lake")).root == str(tmp_path / "lake")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("s3a://bucket/tables", "Use s3:// instead"),
        ("hdfs://node/tables", "unknown scheme 'hdfs'"),
        ("delta:abfss://x/y", "unknown scheme 'abfss'"),
        ("file:/data", "unknown scheme 'file'"),
        ("", "no folder"),
        ("delta:", "no folder"),
        ("s3://", "no bucket"),
        ("s3://b/t?secret=x", "Unknown option 'secret'"),
        ("s3://b/t?catalog=x", "Unknown option 'catalog'"),
        ("iceberg:s3://b/t", "need a catalog"),
    ],
)
def test_what_is_no_address_of_tables_is_refused(text: str, cause: str) -> None:
    """An unknown scheme or option is an error that says what is known; no folder named ``s3a:`` is ever made."""
    with pytest.raises(InvalidArgument, match=cause):
        parse_address(text)
