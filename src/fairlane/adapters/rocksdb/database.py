"""The RocksDB database: its folder, its options, and the meaning of its errors."""

from __future__ import annotations

import logging
from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, Options, Rdict

from fairlane.errors import FairlaneError, InvalidArgument, StoreCorrupt, StoreFailed, StoreLocked
from fairlane.files import replacing, restrict, sync_folder, unfinished_name

PAGES = "pages"
BODIES = "bodies"

FORMAT_VERSION = 1
_MARK = "FAIRLANE"
_MARK_WORDS = "fairlane store, format "
_DATABASE = "rocksdb"

_MIB = 1 << 20
_LOG_FILES_MAX = 3
_OPEN_FILES_MAX = 256
# Memory holds at most three of each buffer (two being flushed while one is filled) and the cache: 139 MiB.
_BUFFERS_MAX = 3
_CACHE_BYTES = 16 * _MIB
_WAL_BYTES_MAX = 96 * _MIB
_BODIES_BUFFER_BYTES = 32 * _MIB
_PAGES_BUFFER_BYTES = 8 * _MIB
_META_BUFFER_BYTES = 1 * _MIB


_log = logging.getLogger("fairlane.store")


def failure(error: Exception, doing: str) -> FairlaneError:
    """Return the Fairlane error for an error of RocksDB; ``doing`` completes "RocksDB could not ..."."""
    text = str(error)
    if text.startswith("Corruption"):
        return StoreCorrupt(f"RocksDB could not {doing}: {text}.")
    if "LOCK:" in text:
        if "by current process" in text:
            return StoreLocked("This process has the store open already, in another broker or client.")
        return StoreLocked(f"Another process has the store open: {text}.")
    return StoreFailed(f"RocksDB could not {doing}: {text}.")


def open_database(folder: Path) -> Rdict:
    """Open the database in a folder, creating both if needed. A folder that is not ours is not touched."""
    _claim_folder(folder)
    database = folder / _DATABASE
    _check_whole(database)
    try:
        return Rdict(str(database), _database_options(), column_families=_family_options())
    except Exception as error:
        raise failure(error, f"open {database}") from error


def _claim_folder(folder: Path) -> None:
    """Check that a folder is ours, by a mark file written before anything else, or mark a new or empty one."""
    mark = folder / _MARK
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if mark.exists():
            _check_version(mark)
            if restrict(folder):
                _log.warning("Other users could read the store %s. Its files are for their owner alone now.", folder)
        elif any(entry != unfinished_name(mark) for entry in folder.iterdir()):
            raise InvalidArgument(f"{folder} is not empty and not a Fairlane store. Choose a new or empty folder.")
        else:
            restrict(folder)
            _write_mark(mark)
    except OSError as error:
        raise StoreFailed(f"Cannot use the folder of the store: {error}.") from error


def _check_version(mark: Path) -> None:
    text = mark.read_text(encoding="utf-8", errors="replace").strip()
    version = text.removeprefix(_MARK_WORDS)
    if version == text or not version.isdecimal():
        raise StoreCorrupt(f"{mark} should name the format of the store, but contains {text[:80]!r}.")
    if int(version) != FORMAT_VERSION:
        raise StoreCorrupt(f"The store has format {version}; this version of Fairlane supports {FORMAT_VERSION}.")


def _write_mark(mark: Path) -> None:
    """Write the mark atomically, so that power may fail at any time."""
    with replacing(mark) as file:
        file.write(f"{_MARK_WORDS}{FORMAT_VERSION}\n".encode())
    sync_folder(mark.parent.parent)  # the folder of the store may be new too


def _check_whole(database: Path) -> None:
    """Raise if RocksDB would create a new database over the remains of one that has lost its root file."""
    if (database / "CURRENT").exists() or not database.exists():
        return
    if any(entry.suffix in {".sst", ".log", ".blob"} for entry in database.iterdir()):
        raise StoreCorrupt(f"{database} has data but the file CURRENT is missing.")


def _database_options() -> Options:
    """Return the options for the database and for its default column family, which holds the extent.

    Recovery is to a point in time: after a power loss the end of the write-ahead log may hold anything, and the log is
    read up to there. The price is that RocksDB cannot tell this from damage in the middle of a log, unless a table was
    written from what came after. It detects damage anywhere else.
    """
    options = _family(_META_BUFFER_BYTES)
    options.create_if_missing(create_if_missing=True)
    options.create_missing_column_families(create_missing_cfs=True)
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_max_total_wal_size(_WAL_BYTES_MAX)
    options.set_max_open_files(_OPEN_FILES_MAX)
    options.set_max_background_jobs(2)
    options.set_bytes_per_sync(_MIB)
    options.set_keep_log_file_num(_LOG_FILES_MAX)
    options.set_max_log_file_size(4 * _MIB)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _family_options() -> dict[str, Options]:
    cache = Cache(_CACHE_BYTES)
    return {PAGES: _family(_PAGES_BUFFER_BYTES, cache), BODIES: _family(_BODIES_BUFFER_BYTES, cache)}


def _family(buffer_bytes: int, cache: Cache | None = None) -> Options:
    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(buffer_bytes)
    options.set_max_write_buffer_number(_BUFFERS_MAX)
    table = BlockBasedOptions()
    if cache is not None:
        table.set_block_cache(cache)
    table.set_bloom_filter(10, block_based=False)
    options.set_block_based_table_factory(table)
    return options
