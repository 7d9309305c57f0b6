"""Tables in an object store: conditional puts decide which of two runs is committed, and nothing is ever renamed."""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.fs

from fairlane.errors import InvalidArgument, StoreFailed
from fairlane.lakehouse.address import TablesAddress
from fairlane.lakehouse.storage import StoredObject

try:
    import obstore
    from obstore import exceptions
    from obstore import store as stores
except ImportError as error:
    raise ImportError("Tables in an object store need the package obstore: install fairlane[lakehouse].") from error

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from typing_extensions import Buffer

_REGION = "us-east-1"
_TIMEOUT = timedelta(seconds=30)
_RETRIES_MAX = 5
T = TypeVar("T")


class ObjectStorage:
    """A prefix in a bucket or container. It can be pickled: each process makes its own client.

    Credentials are found where the provider's tools find them, in the environment or in the role of the machine.
    """

    def __init__(self, address: TablesAddress) -> None:
        """Create a client. Raises InvalidArgument if the address does not suit the store."""
        self.address = address
        self.root = ""
        try:
            self._store = _client(address)
        except (exceptions.BaseError, ValueError) as error:
            raise InvalidArgument(f"Cannot use {address}: {error}.") from error

    def __reduce__(self) -> tuple[type[ObjectStorage], tuple[TablesAddress]]:
        return (ObjectStorage, (self.address,))

    def read(self, name: str) -> StoredObject | None:
        """Return an object."""

        def read() -> StoredObject:
            got = obstore.get(self._store, name)
            return StoredObject(bytes(got.bytes()), _tag(got.meta["e_tag"], got.meta["version"]))

        try:
            return self._do(read, f"read {name}")
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: bytes, *, tag: str | None) -> str | None:
        """Replace an object by a conditional put."""
        mode: Any = "create" if tag is None else msgspec.json.decode(tag)
        try:
            done = self._do(
                lambda: obstore.put(self._store, name, data, mode=mode, use_multipart=False), f"write {name}"
            )
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            # The client repeats a request whose answer was lost, and the repetition is refused because the first one
            # was carried out. Every manifest differs from all others, so the content tells that case from a loss.
            there = self.read(name)
            return there.tag if there is not None and there.data == data else None
        return _tag(done["e_tag"], done["version"])

    def put(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write an object; it appears when it is complete."""
        self._do(lambda: obstore.put(self._store, name, memoryview(data).cast("B")), f"write {name}")

    def names(self, folder: str) -> list[str]:
        """Return the names of objects below a prefix."""
        return self._do(
            lambda: sorted(each["path"] for each in obstore.list(self._store, folder).collect()), f"list {folder}"
        )

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects."""
        found = list(names)
        if found:
            try:
                self._do(lambda: obstore.delete(self._store, found), "delete files")
            except FileNotFoundError:  # a server that tells; the others are deleted one by one
                for name in found:
                    self._delete(name)

    def _delete(self, name: str) -> None:
        try:
            self._do(lambda: obstore.delete(self._store, name), f"delete {name}")
        except FileNotFoundError:
            return

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Check that the store honours conditions. No lock is held: the conditional put refuses the slower of two."""
        name = f".check-{secrets.token_hex(8)}"
        is_new = self.replace(name, b"1", tag=None) is not None
        is_kept = self.replace(name, b"2", tag=None) is None
        self.delete([name])
        if not (is_new and is_kept):
            raise StoreFailed(
                f"The store of {self.address} ignores conditional puts, so two runs could overwrite each other. "
                "Use a store with conditional puts."
            )
        yield

    def filesystem(self) -> pyarrow.fs.FileSystem:
        """Return the objects as files."""
        return pyarrow.fs.PyFileSystem(ObjectFiles(self))

    def open(self, name: str) -> ObjectFile:
        """Return a file to read from. Raises FileNotFoundError if it does not exist."""
        return ObjectFile(self, name, self.size(name))

    def size(self, name: str) -> int:
        """Return the size of a file. Raises FileNotFoundError if it does not exist."""
        return self._do(lambda: int(obstore.head(self._store, name)["size"]), f"read {name}")

    def read_range(self, name: str, start: int, length: int) -> memoryview:
        """Return a part of a file. Raises FileNotFoundError if it does not exist."""
        return self._do(
            lambda: memoryview(obstore.get_range(self._store, name, start=start, length=length)), f"read {name}"
        )

    def _do(self, work: Callable[[], T], what: str) -> T:
        try:
            return work()
        except (FileNotFoundError, exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise
        except (exceptions.BaseError, OSError) as error:
            raise StoreFailed(f"Could not {what} at {self.address}: {error}.") from error


def _tag(e_tag: str | None, version: str | None) -> str:
    known: Mapping[str, str | None] = {"e_tag": e_tag, "version": version}
    return msgspec.json.encode({name: value for name, value in known.items() if value is not None}).decode()


def _client(address: TablesAddress) -> ObjectStore:
    endpoint, more = address.option("endpoint"), dict[str, Any]()
    if address.is_set("anonymous"):
        more["skip_signature"] = True
    if address.scheme == "s3":
        more["region"] = address.option("region") or _REGION
        if endpoint is not None:
            more |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
    elif address.scheme == "az":
        if (account := address.option("account")) is not None:
            more["account_name"] = account
        if endpoint is not None:
            more["endpoint"] = endpoint
    elif endpoint is not None:
        more["base_url"] = endpoint
    bucket, _, prefix = address.root.partition("://")[2].partition("/")
    kind: Any = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[address.scheme]
    made: ObjectStore = kind(
        bucket,
        prefix=prefix or None,
        client_options={"timeout": _TIMEOUT, "allow_http": (endpoint or "").startswith("http://")},
        retry_config={"max_retries": _RETRIES_MAX, "retry_timeout": 4 * _TIMEOUT},
        **more,
    )
    return made


class ObjectFile(io.RawIOBase):
    """A file in an object store, for random access. Each read is a request: Arrow asks for large ranges."""

    def __init__(self, storage: ObjectStorage, name: str, size_bytes: int) -> None:
        self._storage, self._name, self._size_bytes = storage, name, size_bytes
        self._at = 0

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that any part of it can be read."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Change the position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Buffer, /) -> int:
        """Read from the position on."""
        view = memoryview(buffer)
        length = max(0, min(len(view), self._size_bytes - self._at))
        if length:
            view[:length] = self._storage.read_range(self._name, self._at, length)
            self._at += length
        return length


class ObjectFiles(pyarrow.fs.FileSystemHandler):
    """The files of an object store, as Arrow reads them."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectFiles) and other._storage.address == self._storage.address

    def __hash__(self) -> int:
        return hash(self._storage.address)

    def get_type_name(self) -> str:
        """Return the name of this kind of files."""
        return "fairlane-objects"

    def normalize_path(self, path: str) -> str:
        """Return a path as it is."""
        return path

    def get_file_info(self, paths: list[str]) -> list[pyarrow.fs.FileInfo]:
        """Return that files are files."""
        return [pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.File) for path in paths]

    def open_input_file(self, path: str) -> pa.PythonFile:
        """Open a file for random access."""
        return pa.PythonFile(self._storage.open(path.lstrip("/")), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        """Open a file to be read from the beginning to the end."""
        return self.open_input_file(path)

    def _refuse(self, *_: object) -> NoReturn:
        raise NotImplementedError("Tables are read here, not written.")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse
