"""A folder in storage, by its URL: names, reads, writes and removes files. pyarrow's file systems do the work."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from opicflow.schemas.errors import UserError, in_one_line

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_SCHEMES = ("file", "s3", "gs", "abfs", "abfss")
_CONNECT_SECONDS, _REQUEST_SECONDS = 5.0, 30.0
_ATTEMPTS = 3
_TRIAL = ".writable"
_S3_SETTINGS = ("region", "endpoint_override", "scheme")


class StorageRefused(UserError):
    """The storage does not answer, or refuses. One line: which folder, and why."""


@dataclass(frozen=True)
class StorageFolder:
    """A folder: a path, file:///…, s3://bucket/…, gs://bucket/… or abfs://…, by its URL.

    Credentials come from the sources of each service's own tools (environment, files of the user, the machine's
    role), never from the URL: URLs are part of jobs and logs.
    """

    url: str

    @classmethod
    def of(cls, given: str) -> StorageFolder:
        """Return the folder of a URL or path. Raises `StorageRefused` for one that cannot be used."""
        if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", given):
            return cls(Path(given).absolute().as_uri())
        parts = urlsplit(given)
        if parts.scheme not in _SCHEMES:
            raise StorageRefused(f"{parts.scheme}: no storage is known by this name: use a folder or {_ALL_SCHEMES}")
        settings = {name for name, _ in parse_qsl(parts.query)}
        if parts.password or (parts.username and not parts.scheme.startswith("abfs")) or settings & _SECRET_SETTINGS:
            raise StorageRefused(
                f"{parts.scheme}://{parts.hostname}: the URL holds a key, which would be seen in logs: omit it, and "
                "set the key as for the service's own tools, for example in AWS_ACCESS_KEY_ID"
            )
        if unknown := settings - set(_S3_SETTINGS if parts.scheme == "s3" else ()):
            raise StorageRefused(f"{parts.scheme}: {sorted(unknown)[0]!r} is no setting of this storage")
        return cls(given.rstrip("/"))

    @property
    def shown(self) -> str:
        """The URL for people, without settings."""
        return self.url.partition("?")[0]

    def names(self, below: str = "") -> list[str]:
        """Return the names of the files and folders in a folder, sorted; none if it is not there."""
        from pyarrow.fs import FileSelector

        with self._system() as (system, root):
            found = system.get_file_info(FileSelector(_joined(root, below), allow_not_found=True))
        return sorted(one.base_name for one in found)

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the bytes of a file; never more than `most_bytes` and one. Raises `FileNotFoundError`."""
        with self._system() as (system, root), system.open_input_stream(_joined(root, name)) as file:
            return bytes(file.read(most_bytes + 1))

    def write(self, name: str, data: bytes) -> None:
        """Write a file, or replace it. Readers may see a part of the file if this ends half-way."""
        with self._system() as (system, root):
            path = _joined(root, name)
            if self.url.startswith("file:"):
                system.create_dir(path.rpartition("/")[0], recursive=True)
            with system.open_output_stream(path, compression=None) as file:
                file.write(data)

    def check_writable(self) -> None:
        """Write a small file and remove it. Raises `StorageRefused` where that fails."""
        try:
            self.write(_TRIAL, b"")
            self.remove_file(_TRIAL)
        except StorageRefused as problem:
            raise StorageRefused(f"{problem}: make it writable, or name another folder") from None

    def remove(self, name: str) -> None:
        """Remove a folder with all files in it, if it is there."""
        from pyarrow.fs import FileType

        with self._system() as (system, root):
            path = _joined(root, name)
            if system.get_file_info(path).type != FileType.NotFound:
                system.delete_dir(path)

    def remove_file(self, name: str) -> None:
        """Remove a file, if it is there."""
        from pyarrow.fs import FileType

        with self._system() as (system, root):
            path = _joined(root, name)
            if system.get_file_info(path).type == FileType.File:
                system.delete_file(path)

    @contextmanager
    def _system(self) -> Iterator[tuple[FileSystem, str]]:
        try:
            yield _file_system(self.url)
        except FileNotFoundError:
            raise
        except (OSError, ValueError, NotImplementedError) as problem:
            raise StorageRefused(f"{self.shown}: {in_one_line(problem)}") from None


def _joined(root: str, name: str) -> str:
    return f"{root}/{name}".rstrip("/")


def _file_system(url: str) -> tuple[FileSystem, str]:
    """Return pyarrow's file system of a URL, and the path in it. Its clients are shared by this process."""
    from pyarrow import fs

    parts = urlsplit(url)
    if parts.scheme != "s3":
        found: tuple[FileSystem, str] = fs.FileSystem.from_uri(url)
        return found[0], found[1].rstrip("/")
    # pyarrow would find the variables, but make the bucket a part of the server's name.
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    settings = {**({"endpoint_override": endpoint} if endpoint else {}), **dict(parse_qsl(parts.query))}
    if (url, endpoint) not in _s3_systems:
        _s3_systems[url, endpoint] = fs.S3FileSystem(
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_REQUEST_SECONDS,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            allow_delayed_open=True,  # one request for a small file
            **settings,
        )
    return _s3_systems[url, endpoint], f"{parts.netloc}{parts.path}".rstrip("/")


_s3_systems: dict[tuple[str, str], FileSystem] = {}
_ALL_SCHEMES = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
_SECRET_SETTINGS = {"access_key", "secret_key", "session_token"}
