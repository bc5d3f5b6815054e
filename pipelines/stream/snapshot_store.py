"""Snapshots of ledgers in storage: parts of compressed chunks, and a manifest that is written last.

    topic / shard / position-time-chain / part-00000 …
                                        / manifest.json

The name of a snapshot has the next offset of its log, the time of the last record that it has, and the beginning of
the hash of all records. A snapshot without a manifest was not finished, and is never used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import IO, NamedTuple

import xxhash
import zstandard

from opicflow.connectors.storage.folder import StorageFolder, StorageRefused
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.schemas.errors import UserError
from opicflow.schemas.plain_values import read_plain

PART_BYTES = 16 << 20
"""A part ends with the chunk that makes it so large, compressed."""
_MOST_CHUNK_BYTES = 64 << 20
_MOST_PART_BYTES = PART_BYTES + _MOST_CHUNK_BYTES
_MOST_MANIFEST_BYTES = 64 << 20
_MANIFEST = "manifest.json"
_VERSION = 1
_LEVEL = 1
_HOUR_MS = 3_600_000


class SnapshotDamaged(UserError):
    """A file of a snapshot is missing, or has other bytes than were written."""


class NoSnapshots(UserError):
    """A command needs snapshots, and their folder was not given."""


class StoredSnapshot(NamedTuple):
    """A snapshot by its name: the next offset of its log, the time of its last record, the beginning of its hash."""

    next: int
    log_ms: int
    chain: str

    @property
    def name(self) -> str:
        """The name of its folder; names sort as offsets do."""
        return f"{self.next:020}-{self.log_ms:015}-{self.chain}"

    @classmethod
    def of(cls, head: LogHead, log_ms: int) -> StoredSnapshot:
        """Return the snapshot at a head."""
        return cls(head.next, log_ms, head.chain[:16])

    @classmethod
    def named(cls, name: str) -> StoredSnapshot | None:
        """Return the snapshot of a name; None if it is something else."""
        found = re.fullmatch(r"(\d{20})-(\d{15})-([0-9a-f]{0,16})", name)
        return cls(int(found[1]), int(found[2]), found[3]) if found else None


class StoredPart(NamedTuple):
    """A file of a snapshot: its size, its digest, and how many bytes each compressed chunk has."""

    bytes: int
    digest: str
    chunks: list[int]


class PackedSnapshot(NamedTuple):
    """A snapshot that was compressed into a file: its parts follow one another there."""

    parts: list[StoredPart]
    chunk_bytes: int
    """The bytes of all chunks, not compressed."""


def pack_chunks(chunks: Iterable[bytes], into: IO[bytes]) -> PackedSnapshot:
    """Compress chunks into a file."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    parts: list[StoredPart] = []
    sizes: list[int] = []
    digest, size, whole = xxhash.xxh3_128(), 0, 0
    for chunk in chunks:
        frame = compressor.compress(chunk)
        into.write(frame)
        digest.update(frame)
        sizes.append(len(frame))
        size += len(frame)
        whole += len(chunk)
        if size >= PART_BYTES:
            parts.append(StoredPart(size, digest.hexdigest(), sizes))
            digest, size, sizes = xxhash.xxh3_128(), 0, []
    if sizes:
        parts.append(StoredPart(size, digest.hexdigest(), sizes))
    return PackedSnapshot(parts, whole)


@dataclass(frozen=True)
class Snapshots:
    """The place of the snapshots of streams, and how long they stay."""

    folder: StorageFolder
    keep: int = 3
    """The number of a shard's newest snapshots that stay."""
    keep_hours: float = 24.0
    """Snapshots stay at least for so many hours of their log."""

    def of_logs(self, topic: str, topic_id: str) -> SnapshotStore:
        """Return the store of the ledgers of a topic."""
        return SnapshotStore(self, topic, topic_id)


@dataclass(frozen=True)
class _Manifest:
    """What a snapshot is of, and its parts."""

    version: int
    opicflow: str
    """The version of the program that wrote it."""
    topic: str
    topic_id: str
    shard: int
    head: LogHead
    log_ms: int
    bytes: int
    parts: list[StoredPart]


@dataclass(frozen=True)
class SnapshotStore:
    """The snapshots of the ledgers of one topic of logs."""

    where: Snapshots
    topic: str
    topic_id: str
    """Snapshots of an older topic of the same name are never used."""

    def newest_first(self, shard: int) -> list[StoredSnapshot]:
        """Return the snapshots of a shard, finished or not. Raises `StorageRefused`."""
        found = map(StoredSnapshot.named, self.where.folder.names(self._of_shard(shard)))
        return sorted((one for one in found if one is not None), reverse=True)

    def head(self, shard: int, snapshot: StoredSnapshot) -> LogHead | None:
        """Return the head of a finished snapshot; None if it was not finished, or belongs to an older topic."""
        manifest = self._manifest(shard, snapshot)
        return None if manifest is None else manifest.head

    def read(self, shard: int, snapshot: StoredSnapshot) -> Iterator[bytes]:
        """Yield the chunks of a finished snapshot. Raises `SnapshotDamaged` where a part has other bytes."""
        manifest = self._manifest(shard, snapshot)
        if manifest is None:
            raise SnapshotDamaged(f"{self._path(shard, snapshot)}: it was not finished")
        decompressor = zstandard.ZstdDecompressor()
        for number, part in enumerate(manifest.parts):
            name = f"{self._path(shard, snapshot)}/{_part_name(number)}"
            try:
                data = self.where.folder.read(name, _MOST_PART_BYTES)
            except FileNotFoundError:
                raise SnapshotDamaged(f"{name}: the file is missing") from None
            if len(data) != part.bytes or xxhash.xxh3_128_hexdigest(data) != part.digest:
                raise SnapshotDamaged(f"{name}: the file is damaged: it has other bytes than were written")
            begin = 0
            for size in part.chunks:
                yield decompressor.decompress(data[begin : begin + size], max_output_size=_MOST_CHUNK_BYTES)
                begin += size

    def write(self, shard: int, head: LogHead, log_ms: int, packed: PackedSnapshot, file: IO[bytes], by: str) -> None:
        """Write a packed snapshot, its manifest last. `by` is the version of the program. Raises `StorageRefused`."""
        snapshot = StoredSnapshot.of(head, log_ms)
        try:
            self._write(shard, snapshot, head, packed, file, by)
        except StorageRefused:
            with suppress(UserError):  # what is half-written would take the room of the next try
                if self.head(shard, snapshot) is None:
                    self.where.folder.remove(self._path(shard, snapshot))
            raise

    def _write(
        self, shard: int, snapshot: StoredSnapshot, head: LogHead, packed: PackedSnapshot, file: IO[bytes], by: str
    ) -> None:
        path = self._path(shard, snapshot)
        file.seek(0)
        for number, part in enumerate(packed.parts):
            self.where.folder.write(f"{path}/{_part_name(number)}", file.read(part.bytes))
        made_from = self.topic, self.topic_id, shard, head, snapshot.log_ms
        values = asdict(_Manifest(_VERSION, by, *made_from, packed.chunk_bytes, packed.parts))
        self.where.folder.write(f"{path}/{_MANIFEST}", json.dumps({**values, "digest": _digest(values)}).encode())

    def remove_old(self, shard: int) -> int:
        """Remove snapshots of a shard that need not stay, and older ones that were not finished. Returns how many."""
        found = self.newest_first(shard)
        finished = [one for one in found if self._is_finished(shard, one)]
        if not finished:
            return 0
        since_ms = finished[0].log_ms - self.where.keep_hours * _HOUR_MS
        stay = {one for rank, one in enumerate(finished) if rank < self.where.keep or one.log_ms >= since_ms}
        old = [one for one in found if one < finished[0] and one not in stay]
        for one in old:
            self.where.folder.remove_file(f"{self._path(shard, one)}/{_MANIFEST}")  # first: it is no snapshot any more
            self.where.folder.remove(self._path(shard, one))
        return len(old)

    def _is_finished(self, shard: int, snapshot: StoredSnapshot) -> bool:
        return _MANIFEST in self.where.folder.names(self._path(shard, snapshot))

    def _manifest(self, shard: int, snapshot: StoredSnapshot) -> _Manifest | None:
        name = f"{self._path(shard, snapshot)}/{_MANIFEST}"
        try:
            values = json.loads(self.where.folder.read(name, _MOST_MANIFEST_BYTES))
            digest = values.pop("digest")
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):  # the writer ended half-way
            return None
        if digest != _digest(values):
            raise SnapshotDamaged(f"{name}: the file is damaged: it has other bytes than were written")
        if values["version"] != _VERSION:
            raise SnapshotDamaged(f"{name}: version {values['version']} needs a newer opicflow")
        manifest = read_plain(_Manifest, values)
        return manifest if (manifest.topic_id, manifest.shard) == (self.topic_id, shard) else None

    def _of_shard(self, shard: int) -> str:
        return f"{self.topic}/{shard:05}"

    def _path(self, shard: int, snapshot: StoredSnapshot) -> str:
        return f"{self._of_shard(shard)}/{snapshot.name}"


def _part_name(number: int) -> str:
    return f"part-{number:05}"


def _digest(values: dict[str, object]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(values, sort_keys=True).encode())
