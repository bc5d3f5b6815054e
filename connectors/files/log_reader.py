"""Reads crawl logs of any format as a sequence of batches: each is a range of its file, and is decoded by itself.

Each batch begins at the end of the previous one, and their offsets depend on the file alone. So they can be decoded in
any order, on any thread, and reading can continue from the end of any batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

import orjson

from opicflow.connectors.files.avro import decode_avro, records_at
from opicflow.connectors.files.avro_container import AvroBlock, Container, WrongSchema, read_blocks, read_header
from opicflow.connectors.files.csv_events import read_csv
from opicflow.connectors.files.decoded import (
    MOST_REJECTED_BYTES,
    Decoded,
    Item,
    ReadItem,
    RejectWriter,
    Unfinished,
    reject_of,
    with_rejects,
)
from opicflow.connectors.files.edges import read_edges
from opicflow.connectors.files.event_messages import EventMessages, encode_items, messages_of_blocks, messages_of_lines
from opicflow.connectors.files.formats import Format, named_format, sniff
from opicflow.connectors.files.json_values import read_json_values
from opicflow.connectors.files.jsonl import decode_jsonl, items_of_lines
from opicflow.connectors.files.nutch_segment import read_nutch_segment
from opicflow.connectors.files.opening import (
    STDIN,
    Block,
    Damage,
    FileHead,
    InputRefused,
    decompressed,
    head_of,
    is_compressed,
    refuse_utf_16,
)
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.connectors.files.warc import read_arc, read_warc, read_wat
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, CrawlEvent, EventRefused, Reason, Reject
from opicflow.schemas.event_columns import EventWriter

BATCH_BYTES = 4 << 20
_GROWING = (Format.JSONL, Format.JSON, Format.CSV, Format.AVRO)
"""The formats of which an incomplete end may wait for its rest."""
_MOST_HEADER_BYTES = 4 << 20
_BATCH_ITEMS = 500
_BATCH_LINKS = 50_000
_BATCH_TEXT_BYTES = 16 << 20
"""Records that were read one by one wait for their batch until their texts are longer."""


_OTHERS = {
    b"BZh": ("packed with bzip2", "unpack it, such as with bzcat, and read that from standard input (-)"),
    b"\xfd7zXZ\0": ("packed with xz", "unpack it, such as with xzcat, and read that from standard input (-)"),
    b"PAR1": ("Parquet", "write JSON lines or Avro of it"),
}
"""Files of other kinds, by their first bytes: the name of the kind, and what to do."""


@dataclass(frozen=True)
class FileRange:
    """A part of a file: the records that begin from `start` up to (not including) `end`, an offset after decompression.

    `source` is the name under which the ledger keeps its mark. `in_a_line`: `start` may be within a line.
    `may_grow`: the file is read again when it has grown, so an incomplete last line or block waits for its rest.
    `reading`: the users' options about the records. `after_ms`: it is read again, for its events after this time.
    """

    source: str
    file: str
    format: Format
    start: int = 0
    end: int | None = None
    in_a_line: bool = False
    may_grow: bool = False
    reading: Reading = ANY
    after_ms: int | None = None

    @property
    def name(self) -> str:
        """The name of the source for messages."""
        return self.file

    @property
    def stored_bytes(self) -> int | None:
        """The size of a file on this machine, as it is stored; None of others."""
        return os.path.getsize(self.file) if os.path.isfile(self.file) else None

    @property
    def partitions(self) -> tuple[()]:
        """A file has none."""
        return ()

    def read(self) -> Generator[Batch, None, bool]:
        """Yield the batches of the range. Returns whether an incomplete last line or block waits for its rest."""
        return read(self)

    def split(self, range_bytes: int) -> list[FileRange]:
        """Split the range into ranges to read in parallel."""
        return split(self, range_bytes)

    def advanced_to(self, at: int, reached: Sequence[object] = ()) -> FileRange:
        """Return the rest of the range after a batch that ended at this offset."""
        return replace(self, start=at)


class Batch(NamedTuple):
    """Records in [start, end), still to be decoded: as columns, or one by one in their order.

    Both have the same events and rejects, with one exception: columns may have text of Avro that is not UTF-8, which
    is found when their URLs are checked.
    """

    start: int
    end: int
    decode: Callable[[], Decoded]
    items: Callable[[], Iterator[Item]]
    copy: Callable[[bytes], EventMessages] | None = None

    @property
    def size_bytes(self) -> int:
        """The number of bytes that it takes in the log."""
        return self.end - self.start

    @property
    def reached(self) -> tuple[()]:
        """A file has no partitions."""
        return ()

    def messages(self, prefix: bytes) -> EventMessages:
        """Return what `items` does as messages. Those in Avro begin with `prefix`."""
        return encode_items(self.items(), prefix) if self.copy is None else self.copy(prefix)


def format_of(file: str, reading: Reading = ANY, head: FileHead | None = None) -> Format | None:
    """Return the format of a file; None if it is empty. Raises `InputRefused` if it is unknown."""
    head = head or head_of(file)
    if head.is_empty:
        return None
    first = head.data
    refuse_utf_16(file, first)
    if reading.format:
        return named_format(reading, first, file)
    found = sniff(first, file, reading)
    if found is None and first.strip():
        for magic, (what, advice) in _OTHERS.items():
            if first.startswith(magic):
                raise InputRefused(f"{file}: {what}, which is not read: {advice}")
        raise InputRefused(
            f"{file}: not a crawl log: give JSON lines, CSV with the names of the columns, Avro, WARC, WAT, an edge "
            "list, or the log of a crawler that is known (docs/reference/formats.md explains them)"
        )
    if found is None and head.begins_damaged:
        return Format.JSONL  # so that the damage becomes a reject
    return found


def known_format(file: str, reading: Reading = ANY, head: FileHead | None = None) -> Format | None:
    """Detect the format of a file; None if it is empty.

    Standard input cannot be read twice: it has the format that users have named, or is JSON lines.
    """
    if file != STDIN:
        return format_of(file, reading, head)
    return named_format(reading, b"", file) if reading.format else Format.JSONL


def split(input_range: FileRange, range_bytes: int) -> list[FileRange]:
    """Split a range into ranges to read in parallel: plain JSON lines on this machine; others stay whole."""
    if input_range.format is not Format.JSONL or "://" in input_range.file or not os.path.isfile(input_range.file):
        return [input_range]
    with open(input_range.file, "rb") as file:
        if is_compressed(file.read(4)):
            return [input_range]
    end = os.path.getsize(input_range.file) if input_range.end is None else input_range.end
    cuts = list(range(input_range.start + range_bytes, end, range_bytes))
    # A range begins one byte early and drops the rest of that line: so a line that begins at the cut is not lost.
    firsts = [input_range, *(replace(input_range, start=cut - 1, in_a_line=True) for cut in cuts)]
    return [replace(first, end=cut) for first, cut in zip(firsts, [*cuts, input_range.end], strict=True)]


def read(input_range: FileRange) -> Generator[Batch, None, bool]:
    """Yield the batches of a range, in order. Returns whether an incomplete last line or block waits for its rest."""
    start = 0 if _needs_head_of_stdin(input_range) else input_range.start
    blocks = decompressed(input_range.file, start=start, block_bytes=BATCH_BYTES)
    reader = {Format.JSONL: _lines, Format.AVRO: _avro}.get(input_range.format, _items)
    if not (input_range.may_grow and input_range.format in _GROWING):
        return (yield from reader(blocks, input_range))
    whole = _UpToCut(blocks)
    waits = yield from reader(whole, input_range)
    return waits or whole.is_cut


class _UpToCut(Iterator[Block | Damage]):
    """The blocks of a file up to its last gzip member or zstd frame, if that is cut off: `is_cut` then."""

    def __init__(self, blocks: Iterator[Block | Damage]) -> None:
        self._blocks = blocks
        self.is_cut = False

    def __next__(self) -> Block | Damage:
        block = next(self._blocks)
        if isinstance(block, Damage) and block.is_cut:
            self.is_cut = True
            raise StopIteration
        return block


def _needs_head_of_stdin(input_range: FileRange) -> bool:
    """Whether rows have no meaning without the first ones, and those cannot be read again."""
    return input_range.format in (Format.CSV, Format.EDGES) and input_range.file == STDIN


def _lines(blocks: Iterator[Block | Damage], input_range: FileRange) -> Generator[Batch, None, bool]:
    """Whole lines. Damage ends a line; one that is too long is dropped but for its beginning."""
    source, reading, held, at = input_range.source, input_range.reading, b"", input_range.start
    passing = input_range.in_a_line  # until the line ends
    is_too_long = False
    for block in blocks:
        if isinstance(block, Damage):
            if held:
                yield _of_lines(at, block.offset, held, source, reading, is_too_long)
            is_of_the_one_before = passing and not is_too_long and block.offset == at
            if not is_of_the_one_before and not _is_behind(block.offset, input_range):
                yield _of_reject(block.offset, block.offset + 1, _of_damage(block, source))
            held, at, passing, is_too_long = b"", block.offset + 1, False, False
            if _is_behind(at, input_range):
                return False
            continue
        offset, data = block
        if passing:
            end = data.find(b"\n") + 1
            if end == 0:
                continue
            if is_too_long:
                yield _of_lines(at, offset + end, held, source, reading, True)
            held, at, passing, is_too_long = b"", offset + end, False, False
            offset, data = at, data[end:]
        if _is_behind(at, input_range):
            return False
        last = -1 if input_range.end is None else data.find(b"\n", max(input_range.end - 1 - offset, 0))
        end = (data.rfind(b"\n") if last < 0 else last) + 1
        if end:
            lines = b"".join((held, memoryview(data)[:end]))  # one copy; a sum of bytes makes two
            yield _of_lines(at, offset + end, lines, source, reading)
            held, at = b"", offset + end
            if _is_behind(at, input_range):
                return False
        held += data[end:]
        if len(held) > MOST_EVENT_BYTES:
            passing = is_too_long = True
            held = held[:MOST_REJECTED_BYTES]
    waits = held != b"" and input_range.may_grow and _is_unfinished(held)
    if held and not waits:
        yield _of_lines(at, offset + len(data), held, source, reading, is_too_long)
    return waits


def _is_unfinished(line: bytes) -> bool:
    """Whether the last line of a file breaks off: somebody may still be writing it."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return True
    return False


def _is_behind(at: int, input_range: FileRange) -> bool:
    return input_range.end is not None and at >= input_range.end


def _of_lines(
    begin: int, end: int, held: bytes, source: str, reading: Reading = ANY, is_too_long: bool = False
) -> Batch:
    if not is_too_long:
        arguments = (held, source, begin)
        return Batch(
            begin,
            end,
            partial(decode_jsonl, *arguments, reading),
            partial(items_of_lines, *arguments, reading),
            partial(messages_of_lines, *arguments, reading=reading),
        )
    refused = EventRefused(Reason.TOO_LARGE, f"the line is longer than {MOST_EVENT_BYTES >> 20} MiB")
    return _of_reject(begin, end, reject_of(refused, source, begin, held, end - begin))


def _avro(blocks: Iterator[Block | Damage], input_range: FileRange) -> Generator[Batch, None, bool]:
    """Yield the blocks of a container. If its head cannot be read, the whole file is one reject."""
    head = decompressed(input_range.file, block_bytes=_MOST_HEADER_BYTES) if input_range.start else blocks
    first = b""
    for piece in head:
        first += piece.data if isinstance(piece, Block) else b"\0"
        if len(first) >= _MOST_HEADER_BYTES or isinstance(piece, Damage):
            break
    try:
        container = read_header(first)
    except WrongSchema as problem:
        if first and input_range.start == 0:  # else it was reported before
            reject = Reject(Reason.WRONG_SCHEMA, str(problem), input_range.source, 0, first[:MOST_REJECTED_BYTES])
            size = len(first) + sum(len(p.data) if isinstance(p, Block) else 1 for p in blocks)
            yield _of_reject(0, size, reject)
        return False
    pieces: Iterable[Block | Damage] = blocks
    begin = input_range.start
    if begin == 0:
        pieces = chain([Block(container.size, first[container.size :])], blocks)
    held: list[AvroBlock] = []
    end, size, waits = begin, 0, False
    for block in read_blocks(container, pieces):
        if _is_behind(block.offset, input_range):
            break
        if block.is_cut and input_range.may_grow:
            waits = True
            break
        held.append(block)
        end = block.end
        size += len(block.data)
        if size >= BATCH_BYTES or len(held) >= _BATCH_ITEMS:
            yield _of_blocks(begin, end, container, held, input_range.source)
            held, begin, size = [], end, 0
    if held:
        yield _of_blocks(begin, end, container, held, input_range.source)
    return waits


def _of_blocks(begin: int, end: int, container: Container, blocks: list[AvroBlock], source: str) -> Batch:
    arguments = (container, blocks, source)
    return Batch(
        begin,
        end,
        partial(decode_avro, *arguments),
        partial(_items_of_blocks, *arguments),
        partial(messages_of_blocks, *arguments) if container.is_plain else None,
    )


def _items_of_blocks(container: Container, blocks: list[AvroBlock], source: str) -> Iterator[Item]:
    """Yield the records that are events in the columns."""
    decoded = decode_avro(container, blocks, source)
    return with_rejects(records_at(container, blocks, decoded.events.offset, source), decoded)


def _items(blocks: Iterator[Block | Damage], input_range: FileRange) -> Generator[Batch, None, bool]:
    """The records of archives, edge lists, CSV and JSON values, some hundreds at a time."""
    end = input_range.start

    def counted() -> Iterator[Block | Damage]:
        nonlocal end
        for block in blocks:
            end = block.offset + (len(block.data) if isinstance(block, Block) else 1)
            yield block

    def read_from(start: int) -> Iterator[Block | Damage]:
        return decompressed(input_range.file, start=start, block_bytes=BATCH_BYTES)

    again = None if input_range.file == STDIN else read_from
    source, reading, may_grow = input_range.source, input_range.reading, input_range.may_grow
    counted_blocks = counted()
    readers: dict[Format, Callable[[], Iterator[ReadItem]]] = {
        Format.ARC: lambda: read_arc(counted_blocks, source),
        Format.WARC: lambda: read_warc(counted_blocks, source, again),
        Format.WAT: lambda: read_wat(counted_blocks, source, again),
        Format.EDGES: lambda: read_edges(counted_blocks, source, reading, again, input_range.start),
        Format.NUTCH_SEGMENT: lambda: read_nutch_segment(counted_blocks, source),
        Format.JSON: lambda: read_json_values(counted_blocks, source, reading, may_grow),
        Format.CSV: lambda: read_csv(counted_blocks, source, again, input_range.start, reading, may_grow),
    }
    held: list[Item] = []
    links = text_bytes = 0
    begin, waits = input_range.start, False
    for offset, item in readers[input_range.format]():
        if _is_behind(offset, input_range) or isinstance(item, Unfinished):
            end, waits = offset, isinstance(item, Unfinished)
            break
        if len(held) >= _BATCH_ITEMS or links >= _BATCH_LINKS or text_bytes >= _BATCH_TEXT_BYTES:
            yield _of_items(begin, offset, held, input_range.source)
            held, links, text_bytes, begin = [], 0, 0, offset
        held.append((offset, item))
        links += len(item.links or ()) if isinstance(item, CrawlEvent) else 0
        text_bytes += _text_bytes(item)
    if held or end > begin:
        yield _of_items(begin, max(end, begin + 1), held, input_range.source)
    return waits


def _text_bytes(item: CrawlEvent | Reject) -> int:
    """How long the texts of an item are."""
    if isinstance(item, Reject):
        return len(item.bytes) + len(item.detail)
    texts = (item.url, item.canonical, item.content_type, item.digest)
    links = sum([len(link.url) + len(link.rel or "") for link in item.links or ()])
    return sum(len(text) for text in texts if text) + links


def _of_items(begin: int, end: int, items: list[Item], source: str) -> Batch:
    return Batch(begin, end, partial(_written, items, source), partial(_judged, items, source))


def _judged(items: list[Item], source: str) -> Iterator[Item]:
    """Events that were read one by one, without those that no columns take."""
    decoded = _written(items, source)
    offsets = set(decoded.events.offset.tolist())
    return with_rejects((item for item in items if item[0] in offsets), decoded)


def _written(items: list[Item], source: str) -> Decoded:
    """Events that were read one by one, as columns."""
    events, rejects = EventWriter(), RejectWriter(source)
    for offset, item in items:
        if isinstance(item, Reject):
            rejects.take(item)
            continue
        try:
            events.add(offset, item)
        except EventRefused as problem:
            rejects.add(problem.reason, str(problem), offset, item.url.encode("utf-8", "surrogatepass"))
    return Decoded(events.events(), rejects.rejects, unlisted=rejects.unlisted)


def _of_reject(begin: int, end: int, reject: Reject) -> Batch:
    return Batch(begin, end, partial(_rejected, reject), partial(iter, [(reject.offset, reject)]))


def _rejected(reject: Reject) -> Decoded:
    return Decoded(EventWriter().events(), [reject])


def _of_damage(damage: Damage, source: str) -> Reject:
    detail = f"{damage.detail} (byte {damage.compressed_offset} of the compressed file)"
    return Reject(Reason.CORRUPT, detail, source, damage.offset, b"")
