"""Files that are written whole: a link that somebody else put at the path of a file in the making is not followed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opicflow.connectors.files.whole_file import partial_path, whole_file, write_atomically


def write_synced(path: Path, data: bytes) -> None:
    with whole_file(path) as file:
        file.write(data)


@pytest.mark.parametrize("write", [write_synced, write_atomically])
def test_a_link_at_the_path_of_a_file_in_the_making_is_removed(
    write: Callable[[Path, bytes], None], tmp_path: Path
) -> None:
    (tmp_path / "precious").write_bytes(b"kept")
    partial_path(tmp_path / "result").symlink_to(tmp_path / "precious")
    write(tmp_path / "result", b"new")
    assert (tmp_path / "precious").read_bytes() == b"kept" and (tmp_path / "result").read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "result"]


@pytest.mark.parametrize("write", [write_synced, write_atomically])
def test_what_a_killed_process_has_left_is_written_again(write: Callable[[Path, bytes], None], tmp_path: Path) -> None:
    partial_path(tmp_path / "result").write_bytes(b"half of a longer file")
    write(tmp_path / "result", b"new")
    assert (tmp_path / "result").read_bytes() == b"new"
