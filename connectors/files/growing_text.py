"""A text that is read block by block; only the part still needed is kept."""

from __future__ import annotations

from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES
from opicflow.connectors.files.opening import Block, Blocks, Damage


class GrowingText:
    """The bytes from `at` of `data` on are still to be read. `offset` is that of `at` in the file.

    `damage` follows the bytes in `data`, until `go_behind_damage`; `has_ended`: no more bytes come.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = iter(blocks)
        self._first = 0
        self.data = b""
        self.at = 0
        self.damage: Damage | None = None
        self.has_ended = False

    @property
    def offset(self) -> int:
        return self._first + self.at

    def grow(self) -> bool:
        """Read one more block; False if there is damage, or the file has ended."""
        if self.damage is not None or self.has_ended:
            return False
        block = next(self._blocks, None)
        if isinstance(block, Block):
            rest = self.data[self.at :]
            self._first = block.offset - len(rest)
            self.data, self.at = rest + block.data, 0
            return True
        self.damage, self.has_ended = block, block is None
        return False

    def head(self, size: int) -> bytes:
        """The next bytes, up to damage or the end of the file at most; they are still to be read."""
        while len(self.data) - self.at < size and self.grow():
            pass
        return self.data[self.at : self.at + size]

    def go_behind_damage(self) -> None:
        """Drop all bytes up to the damage, and the rest of a line behind it."""
        assert self.damage is not None
        self._first, self.data, self.at = self.damage.offset + 1, b"", 0
        self.damage = None
        self.next_line()

    def next_line(self, most_bytes: int = MOST_REJECTED_BYTES) -> tuple[bytes, bool]:
        """Pass a line, up to damage at most. Returns its first bytes, and whether it has ended with a line break."""
        kept = b""
        while (end := self.data.find(b"\n", self.at)) < 0:
            kept += self.data[self.at : self.at + most_bytes - len(kept)]
            self.at = len(self.data)
            if not self.grow():
                return kept, False
        kept += self.data[self.at : min(end + 1, self.at + most_bytes - len(kept))]
        self.at = end + 1
        return kept, True

    def drain(self) -> None:
        """Read to the end of the file, and drop all."""
        self.at = len(self.data)
        while self.grow() or self.damage is not None:
            self.damage, self.at = None, len(self.data)
