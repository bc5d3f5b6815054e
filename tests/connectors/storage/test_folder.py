"""A folder in storage: on this machine, and behind a real server that speaks S3."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from opicflow.connectors.storage.folder import StorageFolder, StorageRefused
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stream.snapshot_store import SnapshotDamaged, Snapshots, pack_chunks
from support.s3 import S3, SECRET, s3_server


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    with s3_server(monkeypatch) as one:
        yield one


@pytest.fixture(params=["path", "file", "endpoint in the environment", "endpoint in the URL"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StorageFolder:
    if request.param == "path":
        return StorageFolder.of(str(tmp_path / "not there yet"))
    if request.param == "file":
        return StorageFolder.of(f"file://{tmp_path}/a%20folder")
    server: S3 = request.getfixturevalue("s3")
    if request.param == "endpoint in the environment":
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        return StorageFolder.of("s3://snapshots/a/folder/")
    place = server.endpoint.removeprefix("http://")
    return StorageFolder.of(f"s3://snapshots/other?endpoint_override={place}&scheme=http&region=us-east-1")


def test_what_is_written_is_listed_read_and_removed(folder: StorageFolder) -> None:
    assert folder.names() == [] == folder.names("a/b")
    folder.write("a/b/one", b"1" * 1000)
    folder.write("a/two", b"2")
    folder.write("a/two", b"22")
    again: StorageFolder = pickle.loads(pickle.dumps(folder))
    assert (again.names(), again.names("a"), again.names("a/b")) == (["a"], ["b", "two"], ["one"])
    assert again.read("a/two", 100) == b"22" and len(again.read("a/b/one", 10)) == 11, "a bound, and one more"
    with pytest.raises(FileNotFoundError):
        folder.read("a/three", 10)
    folder.remove("a/b")
    folder.remove("a/b")
    assert folder.names("a") == ["two"]


def test_snapshots_are_written_and_read_in_every_kind_of_storage(folder: StorageFolder) -> None:
    store = Snapshots(folder, keep=1, keep_hours=0.0).of_logs("page-ledger", "id")
    for number in (1, 2):
        file = io.BytesIO()
        packed = pack_chunks([b"x" * 5000, b"", bytes([number])], file)
        store.write(7, LogHead(number, "ab" * 16, number - 1, "d"), number, packed, file, "1.0")
    assert [one.next for one in store.newest_first(7)] == [2, 1]
    assert store.remove_old(7) == 1
    (snapshot,) = store.newest_first(7)
    assert list(store.read(7, snapshot)) == [b"x" * 5000, b"", b"\x02"]
    folder.write(f"page-ledger/00007/{snapshot.name}/part-00000", b"something else")
    with pytest.raises(SnapshotDamaged, match="part-00000: the file is damaged"):
        list(store.read(7, snapshot))


def test_a_folder_that_cannot_be_written_is_refused_by_a_trial_that_leaves_nothing(
    folder: StorageFolder, tmp_path: Path
) -> None:
    before = folder.names()
    folder.check_writable()
    assert folder.names() == before
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(StorageRefused, match=r"/file: .*: make it writable, or name another folder$"):
        StorageFolder.of(str(tmp_path / "file")).check_writable()


def test_storage_that_is_away_or_refuses_is_one_line_without_a_secret(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    with pytest.raises(StorageRefused, match=r"^s3://no-such-bucket/x: .*bucket does not exist") as refused:
        StorageFolder.of("s3://no-such-bucket/x").write("a", b"1")
    s3.server.stop()
    with pytest.raises(StorageRefused, match=r"^s3://snapshots/y: .*connect") as away:
        StorageFolder.of("s3://snapshots/y").write("a", b"1")
    for message in (str(refused.value), str(away.value)):
        assert "\n" not in message and SECRET not in message


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://a/b", "ftp: no storage is known by this name"),
        (f"s3://me:{SECRET}@bucket/a", "the URL holds a key"),
        (f"s3://bucket/a?secret_key={SECRET}", "the URL holds a key"),
        ("s3://bucket/a?colour=red", "'colour' is no setting of this storage"),
        ("file:///a?region=x", "'region' is no setting of this storage"),
    ],
)
def test_urls_that_cannot_be_used_are_refused_without_the_key(url: str, why: str) -> None:
    with pytest.raises(StorageRefused, match=why) as refused:
        StorageFolder.of(url)
    assert SECRET not in str(refused.value)


def test_a_path_is_that_of_the_folder_in_which_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert StorageFolder.of("here").url == (tmp_path / "here").as_uri()
