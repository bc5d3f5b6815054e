"""Temporary folders: those of processes that were killed are removed, and no others."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path

import pytest

from opicflow.connectors.files.locked_folder import locked_folder, temporary_folder
from opicflow.schemas.errors import UserError


@pytest.mark.parametrize("has_parent", [True, False])
def test_what_killed_processes_have_left_is_removed_and_nothing_else(
    has_parent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    parent = tmp_path if has_parent else None
    for name in ("elsewhere", "other-killed", "mine-killed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x")
    (tmp_path / "mine-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "mine-file").write_bytes(b"x")
    with temporary_folder("mine-", parent) as first, temporary_folder("mine-", parent) as second:
        assert first.is_dir() and second.is_dir() and first != second
        assert not (tmp_path / "mine-killed").exists()
    left = ["elsewhere", "mine-file", "mine-link", "other-killed"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    assert (tmp_path / "elsewhere" / "file").exists()


def test_a_lock_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"kept")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match="cannot be written to"), locked_folder(tmp_path, "", UserError, UserError):
        pass
    assert (tmp_path / "precious").read_bytes() == b"kept"


def test_a_folder_that_another_process_took_for_abandoned_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, made = fcntl.flock, list[str]()

    def lock_too_late(handle: int, how: int) -> None:
        if not made:
            made.extend(path.name for path in tmp_path.iterdir())
            shutil.rmtree(tmp_path / made[0])
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", lock_too_late)
    with temporary_folder("mine-", tmp_path) as folder:
        assert folder.is_dir() and made and folder.name not in made
    assert list(tmp_path.iterdir()) == []
