"""Finds files by name or pattern, and reads their bytes, decompressed, in blocks of bounded size.

A damaged gzip member or zstd frame yields a `Damage`, and reading continues at the next member or frame that can be
decoded. The same file always gives the same blocks and offsets, so reading can continue from any offset.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain
from typing import Any, BinaryIO, NamedTuple, cast

import zstandard

from opicflow.connectors.files.zip_members import ZipMember, ZipRefused, is_zip, logs_in, member_of
from opicflow.schemas.errors import UserError, in_one_line

STDIN = "-"
BLOCK_BYTES = 8 << 20

_HEAD_BYTES = 1 << 16
_READ_BYTES = 1 << 20
_PIECE_BYTES = 64 << 10
_FIRST_PIECE_BYTES = 512
"""The first piece of a gzip member: a file may have tiny ones, and each call copies the bytes behind the member."""
_TRY_BYTES = 4 << 10
_MOST_TRIES = 4096
_KEPT_BYTES = 1 << 20
"""How far back a search for the next member may go from the byte at which decoding failed."""

_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
_MOST_ZSTD_HEADER_BYTES = 18


_UTF_16 = {
    "UTF-16": re.compile(rb"\xff\xfe|\xfe\xff"),
    "UTF-16LE": re.compile(rb"(?:[\t\n\r -~]\0){8}"),
    "UTF-16BE": re.compile(rb"(?:\0[\t\n\r -~]){8}"),
}
"""How texts in these encodings begin: with the mark of their byte order, or with ASCII characters of two bytes each."""


class InputRefused(UserError, ValueError):
    """A file that was named cannot be read. One line: what, where, and what to do."""


class Block(NamedTuple):
    """Consecutive decompressed bytes. The next block begins at its end, unless there is damage between them."""

    offset: int
    data: bytes


class Damage(NamedTuple):
    """Bytes that cannot be decompressed. It counts as one byte, so that its offset is unique.

    The broken member or frame begins at `compressed_offset` of the file; `detail` is one line for people. Its decoded
    bytes, from `unsure_from` to `offset`, were yielded before: no checksum covers them. `is_cut`: nothing else is wrong
    with it than that the file ends within it.
    """

    offset: int
    compressed_offset: int
    detail: str
    unsure_from: int
    is_cut: bool = False


Blocks = Iterable[Block | Damage]


def expand(names: Sequence[str]) -> list[str]:
    """The files that are meant, in the order given, each pattern's in the order of their names.

    A name is a path, a pattern, "-" for standard input, or, with "://" in it, whatever Beam's file systems know.
    """
    return [file for name in names for file in _expand_one(_checked(name))]


def open_bytes(name: str) -> BinaryIO:
    """The bytes of a file as they are, not decompressed."""
    if name == STDIN:
        return sys.stdin.buffer
    _checked(name)
    try:
        if "://" in name:
            _check_scheme(name)
            filesystems, uncompressed = _filesystems()
            remote: BinaryIO = filesystems.open(name, compression_type=uncompressed)
            return remote
        member = member_of(name)
        if member is not None:
            return cast(BinaryIO, ZipMember(*member))
        return open(name, "rb")
    except FileNotFoundError:
        raise InputRefused(f"{name}: no such file: check the name") from None
    except IsADirectoryError:
        raise InputRefused(f"{name}: a folder: name the files in it, such as {os.path.join(name, '*')}") from None
    except ZipRefused:
        raise
    except (OSError, ValueError, ImportError) as error:
        raise InputRefused(f"{name}: cannot be opened ({in_one_line(error)}): check its permissions") from None


def decompressed(source: str | BinaryIO, *, start: int = 0, block_bytes: int = BLOCK_BYTES) -> Iterator[Block | Damage]:
    """The bytes of a file from the offset `start` on, plain, gzip or zstd: its content decides, not its name.

    Blocks have `block_bytes`, the last one before damage or the end fewer. Bytes before `start` are skipped if the file
    can seek, else read and dropped.
    """
    file = open_bytes(source) if isinstance(source, str) else source
    name = source if isinstance(source, str) else ""
    try:
        tape = _Tape(file)
        codec = _codec_of(tape.piece(0, _TRY_BYTES), name)
        if codec is None and file.seekable():
            file.seek(start - tape.read_to, os.SEEK_CUR)
            yield from _as_they_lie(file, start, block_bytes)
        else:
            yield from _gathered(_members(tape, codec) if codec else _plain(tape), start, block_bytes)
    finally:
        if isinstance(source, str) and source != STDIN:
            file.close()


class FileHead(NamedTuple):
    """How a file begins: its first 64 KB, decompressed, that are not damaged. Empty where there is nothing to read."""

    data: bytes = b""
    is_empty: bool = True
    begins_damaged: bool = False


def head_of(file: str) -> FileHead:
    """Read how a file begins."""
    blocks = decompressed(file, block_bytes=_HEAD_BYTES)
    begins_with = next(blocks, None)
    if begins_with is None:
        return FileHead()
    data = next((block.data for block in chain([begins_with], blocks) if isinstance(block, Block)), b"")
    return FileHead(data, False, isinstance(begins_with, Damage))


def is_compressed(first: bytes) -> bool:
    """Whether a file that begins with these bytes (four are enough) is read through a decompressor."""
    return _codec_of(first, "") is not None


def refuse_utf_16(name: str, first: bytes) -> None:
    """Refuse a text whose first bytes are UTF-16: some consoles write it wherever output is redirected."""
    for encoding, begins in _UTF_16.items():
        if begins.match(first):
            raise InputRefused(
                f"{name}: {encoding}, which is not read: convert it: iconv -f {encoding} -t UTF-8 OLD > NEW"
            )


def _checked(name: str) -> str:
    if "\0" in name:
        raise InputRefused(f"{name[:200]!r}: it contains a NUL character: correct the name")
    return name


def _expand_one(name: str) -> list[str]:
    if name == STDIN:
        return [name]
    if "://" in name:
        return _expand_remote(name)
    if os.path.isdir(name):
        raise InputRefused(f"{name}: a folder: name the files in it, such as {os.path.join(name, '*')}")
    if os.path.exists(name):
        return _logs_at(name)
    if member_of(name) is not None:
        return [name]
    if not glob.has_magic(name):
        raise InputRefused(f"{name}: no such file: check the name")
    found = sorted(path for path in glob.glob(name, recursive=True) if not os.path.isdir(path))
    if not found:
        raise InputRefused(f"{name}: matches no file: check the pattern")
    return [file for path in found for file in _logs_at(path)]


def _logs_at(path: str) -> list[str]:
    """The logs in a file that is there."""
    if os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode):
        raise InputRefused(f"{path}: a pipe, which cannot be read twice: name - instead, and give it as standard input")
    return logs_in(path) if is_zip(path) else [path]


def _expand_remote(name: str) -> list[str]:
    _check_scheme(name)
    if name.startswith("s3://"):
        _check_s3(name)
    filesystems, _ = _filesystems()
    try:
        found = sorted(file.path for match in filesystems.match([name]) for file in match.metadata_list)
    except Exception as error:  # each file system has its own errors
        if str(error).startswith("Unable to get filesystem"):
            raise InputRefused(f"{name}: not an address of files: give a path, s3://, gs:// or hdfs://") from None
        raise _cannot_be_listed(name, _cause(error)) from None
    if not found:
        raise InputRefused(f"{name}: no such file: check the name")
    return found


_WEB = ("http", "https", "ftp", "ftps")
_PACKAGES = {
    "s3": ("boto3", "pip install 'apache-beam[aws]'"),
    "gs": ("google.cloud.storage", "pip install 'apache-beam[gcp]'"),
    "hdfs": ("hdfs", "pip install 'apache-beam[hadoop]'"),
}
"""The package that Beam needs for each kind of address, and how it is installed."""
_S3_SECONDS = 10


def _check_scheme(name: str) -> None:
    """Refuse addresses that Beam cannot read here, with what to do."""
    scheme = name.partition("://")[0].lower()
    if scheme in _WEB:
        raise InputRefused(f"{name}: files of web servers are not read: download it first, then name the file")
    package, remedy = _PACKAGES.get(scheme, (None, ""))
    if package is not None and not _is_installed(package):
        raise InputRefused(f"{name}: reading {scheme}:// needs a package that is not installed: {remedy}")


def _check_s3(name: str) -> None:
    """Refuse a bucket that cannot be reached, or only with a login: Beam tries again for six minutes.

    Other answers about the bucket, such as that this login may not list it, are left to Beam: it may still read files.
    """
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    patience = Config(connect_timeout=_S3_SECONDS, read_timeout=_S3_SECONDS, retries={"total_max_attempts": 2})
    bucket = name.removeprefix("s3://").partition("/")[0]
    try:
        boto3.Session().client("s3", config=patience).list_objects_v2(Bucket=bucket, MaxKeys=1)
    except ClientError:
        pass
    except (BotoCoreError, ValueError) as error:  # ValueError: the address of a server that is none
        raise _cannot_be_listed(name, error) from None


def _cause(error: Exception) -> Exception:
    """Return the first error of a file itself: Beam's own error quotes all errors."""
    while details := getattr(error, "exception_details", None):
        error = next(iter(details.values()))
    words = getattr(error, "message", None)
    return error if words is None else OSError(words)


def _cannot_be_listed(name: str, error: Exception) -> InputRefused:
    return InputRefused(f"{name}: cannot be listed ({in_one_line(error)}): check the address, and your access to it")


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def _filesystems() -> tuple[Any, str]:
    from apache_beam.io.filesystem import CompressionTypes  # takes seconds, and few need it
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    if FileSystems._pipeline_options is None:
        FileSystems.set_options(PipelineOptions([]))  # type: ignore[no-untyped-call]  # s3:// needs some, of any content
    return FileSystems, CompressionTypes.UNCOMPRESSED


class _Tape:
    """The bytes of a file, read once, forwards. The last ones are kept, so that a search can go back a little."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes = bytearray()
        self._first = 0
        self.ended = False

    @property
    def read_to(self) -> int:
        return self._first + len(self._bytes)

    def piece(self, at: int, size: int) -> bytes:
        """The bytes from `at` on, fewer than `size` only at the end of the file."""
        while self.read_to < at + size and not self.ended:
            forget = min(at - _KEPT_BYTES - self._first, len(self._bytes))
            if forget >= _READ_BYTES:
                del self._bytes[:forget]
                self._first += forget
            more = self._file.read(_READ_BYTES)
            self._bytes += more
            self.ended = not more
        return bytes(self._bytes[at - self._first : at - self._first + size])


class _BrokenMember(NamedTuple):
    """The beginning of a member that cannot be decoded, the problem, and whether the file ends within it."""

    begins: int
    detail: str
    is_cut: bool


_Piece = bytes | _BrokenMember | None
"""Decoded bytes; or a broken member; or None at the begin of a member."""


class _Broken(Exception):
    """A member cannot be decoded any further than `at`."""

    def __init__(self, at: int, detail: str) -> None:
        super().__init__(detail)
        self.at = at


class _CutOff(_Broken):
    """The file ends within a member."""

    def __init__(self, at: int) -> None:
        super().__init__(at, "it is cut off")


class _Codec(NamedTuple):
    name: str
    magic: bytes
    decode: Callable[
        [_Tape, int], Generator[bytes, None, int]
    ]  # yields decoded bytes, returns the begin of the next member
    begins: Callable[[_Tape, int], bool]  # whether a member really begins here


def _as_they_lie(file: BinaryIO, offset: int, block_bytes: int) -> Iterator[Block]:
    while data := file.read(block_bytes):
        while len(data) < block_bytes and (more := file.read(block_bytes - len(data))):
            data += more
        yield Block(offset, data)
        offset += len(data)


def _plain(tape: _Tape) -> Iterator[_Piece]:
    at = 0
    while piece := tape.piece(at, _READ_BYTES):
        yield piece
        at += len(piece)


def _codec_of(first: bytes, name: str) -> _Codec | None:
    if first.startswith(_GZIP):
        return _GZIP_CODEC
    if first.startswith(_ZSTD) or _SKIPPABLE.match(first):
        return _ZSTD_CODEC
    # The first bytes of a compressed file may be damaged: then its name decides, and bytes that no text has.
    if re.search(rb"[\x00-\x08]", first) and not first.startswith(b"Obj\x01"):
        return {".gz": _GZIP_CODEC, ".zst": _ZSTD_CODEC}.get(os.path.splitext(name)[1].lower())
    return None


def _members(tape: _Tape, codec: _Codec) -> Iterator[_Piece]:
    at = 0
    gone_back_bytes = 0
    while first := tape.piece(at, 1):
        if first == b"\0":  # some writers fill up with zeros
            piece = tape.piece(at, _PIECE_BYTES)
            at += len(piece) - len(piece.lstrip(b"\0"))
            continue
        begins = at
        yield None
        try:
            at = yield from codec.decode(tape, begins)
        except _Broken as broken:
            # A member that lost bytes may have swallowed the next ones before it broke, so the search goes back, but
            # all in all not further than the file is long: the time stays linear.
            back_bytes = min(broken.at - begins - 1, _KEPT_BYTES, _KEPT_BYTES + tape.read_to - gone_back_bytes)
            back_bytes = max(back_bytes, 0)
            gone_back_bytes += back_bytes
            at, given_up = _next_member(tape, codec, max(broken.at - back_bytes, begins + 1))
            after = f"reading goes on at byte {at}"
            if given_up:
                after = f"{_MOST_TRIES} candidates after it are none: the rest of the file is not read"
            elif not tape.piece(at, 1):
                after = "there is no other after it"
            is_cut = isinstance(broken, _CutOff) and not given_up and not tape.piece(at, 1)
            detail = f"the {codec.name} at byte {begins} is damaged at byte {broken.at} ({broken}), {after}"
            yield _BrokenMember(begins, detail, is_cut)
            if given_up:
                return


def _next_member(tape: _Tape, codec: _Codec, at: int) -> tuple[int, bool]:
    """The beginning of the next member, or the end of the file; and whether the search was given up."""
    tries = 0
    while piece := tape.piece(at, _PIECE_BYTES):
        found = piece.find(codec.magic)
        if found < 0:
            at += max(len(piece) - len(codec.magic) + 1, 1)
        elif codec.begins(tape, at + found):
            return at + found, False
        else:
            at += found + 1
            tries += 1
            if tries == _MOST_TRIES:
                return at, True
    return at, False


def _gzip_member(tape: _Tape, at: int) -> Generator[bytes, None, int]:
    decoder = zlib.decompressobj(31)
    begin, size = at, _FIRST_PIECE_BYTES
    while not decoder.eof:
        piece = tape.piece(at, size)
        before = zlib.decompressobj(31) if at == begin else decoder.copy()
        size = _PIECE_BYTES
        try:
            out = decoder.decompress(piece, _READ_BYTES)
        except zlib.error as error:
            good_bytes = yield from _salvaged(before, piece)
            raise _Broken(at + good_bytes, str(error)) from None
        if not piece and not out:
            raise _CutOff(at)
        # At the end of a member both hold the bytes behind it, if the output of the call before reached its limit.
        at += len(piece) - len(decoder.unused_data if decoder.eof else decoder.unconsumed_tail)
        yield out
    return at


def _salvaged(decoder: zlib._Decompress, piece: bytes) -> Generator[bytes, None, int]:
    """Decode the good part of a damaged piece. A call that fails returns nothing, so the calls get smaller."""
    at = 0
    for size in (4096, 64, 1):
        while at < len(piece):
            before = decoder.copy()
            try:
                out = decoder.decompress(piece[at : at + size])
            except zlib.error:
                decoder = before
                break
            yield out
            at += size
    return at


def _gzip_begins(tape: _Tape, at: int) -> bool:
    decoder = zlib.decompressobj(31)
    try:
        return bool(decoder.decompress(tape.piece(at, _TRY_BYTES), _PIECE_BYTES)) or decoder.eof
    except zlib.error:
        return False


def _zstd_frame(tape: _Tape, at: int) -> Generator[bytes, None, int]:
    """Decode a frame block by block: the output of one call has no bound, but a block has at most 128 KiB."""
    if _SKIPPABLE.match(tape.piece(at, 4)):
        size = tape.piece(at + 4, 4)
        end = at + 8 + int.from_bytes(size, "little")
        for passed in range(at, end, _READ_BYTES):
            tape.piece(passed, 1)
        if not tape.piece(end - 1, 1):
            raise _CutOff(at + 8)
        return end
    head = tape.piece(at, _MOST_ZSTD_HEADER_BYTES)
    try:
        head_bytes = zstandard.frame_header_size(head)
        has_checksum = zstandard.get_frame_parameters(head).has_checksum
        decoder = zstandard.ZstdDecompressor().decompressobj()
        yield decoder.decompress(head[:head_bytes])
        at += head_bytes
        last = False
        while not last:
            block_head = tape.piece(at, 3)
            word = int.from_bytes(block_head, "little")
            last, kind, size_bytes = bool(word & 1), word >> 1 & 3, word >> 3
            block = tape.piece(at, 3 + (1 if kind == 1 else size_bytes))  # kind 1: one byte, so many times
            if len(block_head) < 3 or len(block) < 3 + (1 if kind == 1 else size_bytes):
                raise _CutOff(at)
            yield decoder.decompress(block)
            at += len(block)
        if has_checksum:
            checksum = tape.piece(at, 4)
            if len(checksum) < 4:
                raise _CutOff(at)
            yield decoder.decompress(checksum)
            at += len(checksum)
    except zstandard.ZstdError as error:
        raise (_CutOff(at) if len(head) < _MOST_ZSTD_HEADER_BYTES else _Broken(at, str(error))) from None
    return at


def _zstd_begins(tape: _Tape, at: int) -> bool:
    try:
        return any(_zstd_frame(tape, at)) or True
    except _Broken:
        return False


_GZIP_CODEC = _Codec("gzip member", _GZIP, _gzip_member, _gzip_begins)
_ZSTD_CODEC = _Codec("zstd frame", _ZSTD, _zstd_frame, _zstd_begins)


def _gathered(pieces: Iterator[_Piece], start: int, block_bytes: int) -> Iterator[Block | Damage]:
    """Join pieces into blocks of one size, with offsets; bytes before `start` are dropped."""
    waiting = bytearray()
    offset = 0  # of the first byte that waits
    member = 0
    for piece in pieces:
        if piece is None:
            member = offset + len(waiting)
            continue
        if isinstance(piece, _BrokenMember):
            if waiting:
                yield Block(offset, bytes(waiting))
            offset += len(waiting)
            waiting.clear()
            if offset >= start:
                yield Damage(offset, piece.begins, piece.detail, member, piece.is_cut)
            offset += 1
            continue
        if offset < start:
            dropped = min(start - offset, len(piece))
            piece = piece[dropped:]
            offset += dropped
        waiting += piece
        while len(waiting) >= block_bytes:
            yield Block(offset, bytes(waiting[:block_bytes]))
            del waiting[:block_bytes]
            offset += block_bytes
    if waiting:
        yield Block(offset, bytes(waiting))
