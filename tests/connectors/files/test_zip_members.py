"""WACZ files: their WARC files are read as if they were unpacked, and damaged files are refused in one line."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from opicflow.connectors.files import zip_members
from opicflow.connectors.files.log_reader import FileRange, format_of, read
from opicflow.connectors.files.opening import expand, open_bytes
from opicflow.connectors.files.zip_members import ZipRefused
from support.archives import gz, page
from support.hostile_values import one_line
from support.paths import TOP

PAGES = (TOP / "examples" / "crawlers" / "browsertrix-pages.jsonl").read_bytes()
WARC = b"".join(gz(page(number)) for number in range(30))


def wacz(folder: Path, members: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> Path:
    file = folder / "site.wacz"
    with zipfile.ZipFile(file, "w", packing) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file


def items_of(name: str, start: int = 0) -> list[tuple[int, object]]:
    kind = format_of(name)
    assert kind is not None
    return [item for batch in read(FileRange("log", name, kind, start)) for item in batch.items()]


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_wacz_file_is_its_warc_files(packing: int, tmp_path: Path) -> None:
    members = {
        "archive/b.warc.gz": WARC,
        "archive/a.warc": page(40),
        "pages/pages.jsonl": PAGES,
        "datapackage.json": b"{}",
    }
    file = wacz(tmp_path, members, packing)
    assert expand([str(file)]) == expand([str(tmp_path / "*.wacz")])
    assert expand([str(file)]) == [f"{file}/archive/a.warc", f"{file}/archive/b.warc.gz"]
    (tmp_path / "b.warc.gz").write_bytes(WARC)
    whole = items_of(f"{file}/archive/b.warc.gz")
    assert whole == items_of(str(tmp_path / "b.warc.gz")) and len(whole) == 30
    assert items_of(f"{file}/archive/b.warc.gz", start=whole[7][0]) == whole[7:]
    with open_bytes(f"{file}/archive/b.warc.gz") as opened:
        assert opened.seek(0, 2) == len(WARC) and opened.seek(-5, 1) == len(WARC) - 5 and opened.read() == WARC[-5:]


def test_without_warc_files_the_lists_of_pages_are_read_and_any_file_can_be_named(tmp_path: Path) -> None:
    file = wacz(tmp_path, {"pages/pages.jsonl": PAGES, "other/log.jsonl": b'{"url":"https://a/"}\n'})
    assert expand([str(file)]) == [f"{file}/pages/pages.jsonl"]
    assert expand([f"{file}/other/log.jsonl"]) == [f"{file}/other/log.jsonl"]
    assert len(items_of(f"{file}/pages/pages.jsonl")) == 8 and len(items_of(f"{file}/other/log.jsonl")) == 1


def test_the_directory_of_a_file_is_read_once_for_all_its_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = wacz(tmp_path, {f"archive/{number:03}.warc": b"" for number in range(200)})
    opened = list[str]()

    class CountedZipFile(zipfile.ZipFile):
        def __init__(self, path: str) -> None:
            opened.append(path)
            super().__init__(path)

    with monkeypatch.context() as patched:
        patched.setattr(zipfile, "ZipFile", CountedZipFile)
        names = expand([str(file)])
        for name in names:
            with open_bytes(name) as member:
                assert member.read() == b""
    assert len(names) == 200 and opened == [str(file)]
    changed = wacz(tmp_path, {"archive/new.warc": b""})
    assert expand([str(changed)]) == [f"{changed}/archive/new.warc"]


def test_a_file_with_too_many_members_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_members, "MOST_MEMBERS", 2)
    file = wacz(tmp_path, {f"archive/{number}.warc": b"" for number in range(3)})
    with pytest.raises(ZipRefused, match=r"site\.wacz: 3 files in one ZIP file, of at most 2: unpack it$"):
        expand([str(file)])


def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path) -> None:
    file = wacz(tmp_path, {"readme.txt": b"x"})
    with pytest.raises(ZipRefused, match=r"without archive/\*\.warc\.gz"):
        expand([str(file)])
    with pytest.raises(ZipRefused, match=r"none\.warc: no such file"):
        open_bytes(f"{file}/none.warc")
    data = wacz(tmp_path, {"archive/a.warc.gz": WARC}).read_bytes()
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(ZipRefused, match=r"site\.wacz: not a whole ZIP file"):
        expand([str(file)])
    spoilt = bytearray(wacz(tmp_path, {"pages/pages.jsonl": PAGES}).read_bytes())
    spoilt[200] ^= 1
    file.write_bytes(spoilt)
    with pytest.raises(ZipRefused, match=r"pages\.jsonl: cannot be read from its ZIP file \(Bad CRC-32"):
        items_of(f"{file}/pages/pages.jsonl")


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_whose_packed_bytes_make_no_sense_is_refused_in_one_line(packing: int, tmp_path: Path) -> None:
    file = wacz(tmp_path, {"pages/pages.jsonl": PAGES}, packing)
    data, begin = bytearray(file.read_bytes()), 30 + len("pages/pages.jsonl")
    data[begin + 9 : begin + 200] = bytes([255] * 191)  # the first nine bytes are the head that LZMA needs
    file.write_bytes(data)
    with pytest.raises(ZipRefused, match=r"pages\.jsonl: cannot be read from its ZIP file") as refused:
        items_of(f"{file}/pages/pages.jsonl")
    one_line(refused.value)


@pytest.mark.parametrize("name", ["archive/a\n\x1b[31m.warc", "pages/\u202e.jsonl"])
def test_a_log_with_control_characters_in_its_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ZipRefused, match="control characters in a name: unpack it, and rename it") as refused:
        expand([str(wacz(tmp_path, {name: b""}))])
    one_line(refused.value)
