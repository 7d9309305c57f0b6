"""The RocksDB database: its folder, its options, and the meaning of its errors."""

from __future__ import annotations

from pathlib import Path

from rocksdict import AccessType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, Options, Rdict

from fairlane.adapters.folder.high_water import HighWater
from fairlane.adapters.folder.mark import ROCKSDB, claim_folder
from fairlane.adapters.rocksdb.folder import DATABASE, check_whole, locked, open_here
from fairlane.errors import FairlaneError, StoreCorrupt, StoreDamaged, StoreFailed, StoreLocked
from fairlane.files import sync_folder

PAGES = "pages"
BODIES = "bodies"

EXTENT_KEY = b"extent"

_MIB = 1 << 20
_LOG_FILES_MAX = 3
_OPEN_FILES_MAX = 256
# Memory holds at most three of each buffer (two being flushed while one is filled) and the cache: 91 MiB.
_BUFFERS_MAX = 3
_CACHE_BYTES = 16 * _MIB
_WAL_BYTES_MAX = 96 * _MIB
_BODIES_BUFFER_BYTES = 16 * _MIB
_PAGES_BUFFER_BYTES = 8 * _MIB
_META_BUFFER_BYTES = 1 * _MIB


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


def open_database(folder: Path) -> tuple[Rdict, HighWater]:
    """Open the database in a folder, creating both if needed, and return it with the high-water mark from before.

    A folder that is not ours is not touched, and neither is a store that is damaged: RocksDB would drop what it cannot
    read, and delete the evidence.

    Raises:
        StoreDamaged, StoreCorrupt: the store must not be opened.
        StoreLocked: another process has the store open, or this one.
        StoreFailed, InvalidArgument: the folder cannot be used.
    """
    claim_folder(folder, ROCKSDB)
    database = folder / DATABASE
    with locked(database):
        high_water = check_whole(folder, probe=probe_reach)
    try:
        opened = create_database(database)
    except Exception as error:
        raise opening_failure(error, database) from error
    sync_folder(folder)  # RocksDB syncs its own folder, but not the name of it
    open_here.add(database.resolve())
    return opened, high_water


def note_closed(folder: Path) -> None:
    """Note that this process no longer has the database of a folder open."""
    open_here.discard((folder / DATABASE).resolve())


def probe_reach(database: Path) -> int:
    """Open a database read-only, and return the next sequence of its journal; 1 if it has none.

    Raises:
        StoreDamaged: RocksDB cannot read it.
    """
    try:
        opened = open_read_only(database)
        try:
            value = opened.get(EXTENT_KEY)
        finally:
            opened.close()
    except Exception as error:
        raise opening_failure(error, database) from error
    return int.from_bytes(value[-8:], "big") if value is not None else 1


def create_database(database: Path) -> Rdict:
    """Open a database to write to it, and create it if it does not exist."""
    return Rdict(str(database), database_options(), column_families=_family_options())


def open_read_only(database: Path) -> Rdict:
    """Open a database without changing anything in it."""
    access = AccessType.read_only(error_if_log_file_exist=False)
    return Rdict(str(database), database_options(), column_families=_family_options(), access_type=access)


def opening_failure(error: Exception, database: Path) -> FairlaneError:
    """Return the Fairlane error for a database that RocksDB cannot open."""
    known = failure(error, f"open {database}")
    # What RocksDB looks for in an existing database and does not find is lost, though it reports a failed read.
    is_lost = isinstance(known, StoreFailed) and "No such file" in known.cause
    return StoreDamaged(known.cause) if isinstance(known, StoreCorrupt) or is_lost else known


def database_options() -> Options:
    """Return the options for the database and for its default column family, which holds the extent.

    Recovery is to a point in time: after a power loss the end of the write-ahead log may hold anything, and the log is
    read up to there. RocksDB cannot tell this from damage in the middle of a log, so ``check_whole`` does that before.
    RocksDB detects damage anywhere else.
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
