"""Objects in a bucket, and the conditional writes that everything else depends on."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar

import obstore
from obstore import exceptions
from obstore import store as obstore_store

from fairlane.errors import InvalidArgument, StoreFailed

_REGION = "us-east-1"
_TIMEOUT = timedelta(seconds=10)
_RETRIES_MAX = 3
T = TypeVar("T")


class ObjectBucket:
    """A bucket, as S3 calls it, or a container, as Azure does, and a prefix in it. Every method may raise
    ``StoreFailed``.
    """

    def __init__(
        self, kind: Callable[..., obstore_store.ObjectStore], scheme: str, address: str, **options: object
    ) -> None:
        """Create a client for a bucket.

        Args:
            kind: obstore's client for the service.
            scheme: what the URLs of such buckets begin with.
            address: the bucket and, after a slash, the prefix.
            options: what the client needs besides.
        """
        bucket, _, prefix = address.partition("/")
        self.name = f"{scheme}://{bucket}/{prefix.strip('/')}"
        is_clear = str(options.get("endpoint", "")).startswith("http://")
        try:
            self._store = kind(
                bucket,
                prefix=prefix.strip("/") or None,
                client_options={"timeout": _TIMEOUT, "allow_http": is_clear},
                retry_config={"max_retries": _RETRIES_MAX, "retry_timeout": _TIMEOUT},
                **options,
            )
        except (exceptions.BaseError, ValueError) as error:
            raise InvalidArgument(f"Cannot use {self.name}: {error}.") from error

    def create(self, name: str, data: bytes) -> str | None:
        """Create an object and return its tag, or None if an object of this name exists."""
        try:
            put = self._do(lambda: obstore.put(self._store, name, data, mode="create", use_multipart=False), "write")
        except exceptions.AlreadyExistsError:
            return None
        except FileNotFoundError as error:  # an object that is created can't be missing, so its bucket is
            raise self._failure("write", error) from error
        return put["e_tag"]

    def replace(self, name: str, data: bytes, *, tag: str) -> str | None:
        """Replace an object that has this tag and return its new tag, or None if it has changed."""
        try:
            put = self._do(
                lambda: obstore.put(self._store, name, data, mode={"e_tag": tag}, use_multipart=False), "write"
            )
        except exceptions.PreconditionError:
            return None
        return put["e_tag"]

    def read(self, name: str) -> tuple[bytes, str] | None:
        """Return an object and its tag, or None if it does not exist."""

        def read() -> tuple[bytes, str]:
            got = obstore.get(self._store, name)
            return bytes(got.bytes()), str(got.meta["e_tag"])

        try:
            return self._do(read, "read")
        except FileNotFoundError:
            return None

    def read_ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes] | None:
        """Return ranges of an object, or None if it does not exist."""
        try:
            parts = self._do(lambda: obstore.get_ranges(self._store, name, starts=starts, lengths=lengths), "read")
        except FileNotFoundError:
            return None
        return [bytes(part) for part in parts]

    def names(self, folder: str, *, after: str = "") -> list[tuple[str, float]]:
        """Return the sorted names of the objects in a folder, and when each was written, in seconds by the server's
        clock.
        """

        def names() -> list[tuple[str, float]]:
            found = obstore.list(self._store, folder, offset=f"{folder}/{after}").collect()
            return sorted((each["path"].rpartition("/")[2], each["last_modified"].timestamp()) for each in found)

        return self._do(names, "list")

    def tags(self, folder: str) -> dict[str, str | None]:
        """Return the paths of all objects below a folder, and their tags if the server lists them."""

        def tags() -> dict[str, str | None]:
            return {each["path"]: _quoted(each["e_tag"]) for each in obstore.list(self._store, folder).collect()}

        return self._do(tags, "list")

    def modified_s(self, name: str) -> float:
        """Return when an object was written, in seconds by the server's clock."""
        return self._do(lambda: obstore.head(self._store, name), "read")["last_modified"].timestamp()

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""
        unneeded = list(names)
        if not unneeded:
            return
        try:
            self._do(lambda: obstore.delete(self._store, unneeded), "delete")
        except FileNotFoundError:  # Azure reports a missing one, and which others it has deleted is unknown
            if len(unneeded) > 1:
                for name in unneeded:
                    self.delete([name])

    def check_conditions(self) -> float:
        """Check that the server honours conditional writes, and return its time in seconds.

        Ownership depends on it, and a server that ignores an unknown header would lose commits without any error. So it
        is tried out on a probe object before a store is opened, instead of being trusted. Raises InvalidArgument if it
        does not, so two processes could overwrite each other's commits.
        """
        name = f"probe/{secrets.token_hex(8)}"
        try:
            tag = self.create(name, b"1")
            if tag is None:
                raise StoreFailed(f"An answer of {self.name} was lost while conditional writes were checked.")
            is_exclusive = self.create(name, b"2") is None
            is_compared = self.replace(name, b"3", tag='"another"') is None
            is_replaced = self.replace(name, b"4", tag=tag) is not None
            now_s = self.modified_s(name)
        finally:
            self.delete([name])
        for is_honoured, condition in (
            (is_exclusive, "If-None-Match"),
            (is_compared, "If-Match"),
            (is_replaced, "If-Match"),
        ):
            if not is_honoured:
                raise InvalidArgument(
                    f"The server of {self.name} does not honour {condition}: two processes could write to one store. "
                    "Use a server that does: current versions of Amazon S3, MinIO, SeaweedFS and Ceph, or Azure."
                )
        return now_s

    def _do(self, do: Callable[[], T], doing: str) -> T:
        try:
            return do()
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileNotFoundError):
            raise
        except exceptions.NotSupportedError as error:
            raise InvalidArgument(f"{self.name} does not support conditional requests ({doing}): {error}.") from error
        except (exceptions.BaseError, OSError) as error:
            raise self._failure(doing, error) from error

    def _failure(self, doing: str, error: Exception) -> StoreFailed:
        text = " ".join(str(error).split())[:400]
        return StoreFailed(f"{self.name} could not {doing}: {text}.")


def _quoted(tag: str | None) -> str | None:
    """Return a tag as it is in the answer to a write: Azure lists it without its quotes."""
    return f'"{tag}"' if tag is not None and not tag.endswith('"') else tag


class S3Bucket(ObjectBucket):
    """A bucket in S3.

    Credentials are found like the AWS tools find them: ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, or the role
    of the machine.
    """

    def __init__(
        self, address: str, *, endpoint: str | None = None, region: str | None = None, is_anonymous: bool = False
    ) -> None:
        """Create a client for a bucket.

        Args:
            address: the bucket and, after a slash, the prefix.
            endpoint: the address of a server other than Amazon's.
            region: the region of the bucket.
            is_anonymous: send requests without credentials.
        """
        more = {} if endpoint is None else {"endpoint": endpoint, "virtual_hosted_style_request": False}
        options = {"region": region or _REGION, "skip_signature": is_anonymous, **more}
        super().__init__(obstore_store.S3Store, "s3", address, **options)


class AzureContainer(ObjectBucket):
    """A container in Azure Blob Storage.

    Credentials are found like the Azure tools find them: ``AZURE_STORAGE_ACCOUNT_KEY``, ``AZURE_STORAGE_SAS_TOKEN``,
    ``AZURE_CLIENT_ID`` and what belongs to it, or the managed identity of the machine.
    """

    def __init__(self, address: str, *, account: str | None = None, endpoint: str | None = None) -> None:
        """Create a client for a container.

        Args:
            address: the container and, after a slash, the prefix.
            account: the storage account; by default that of ``AZURE_STORAGE_ACCOUNT_NAME``.
            endpoint: the address of a server other than Microsoft's.
        """
        options = {"account_name": account, "endpoint": endpoint}
        given = {name: value for name, value in options.items() if value is not None}
        super().__init__(obstore_store.AzureStore, "az", address, **given)
