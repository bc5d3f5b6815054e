"""Files of grades: with and without names of columns, repeated pages, and every wrong line refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from opicflow.connectors.files.grade_reader import Grades, read_grades
from opicflow.connectors.files.opening import InputRefused
from opicflow.schemas.pages import page_ids

PLAIN = b"https://a.example/,3\nhttps://b.example/x,1.5\n"


def read(path: Path, data: bytes) -> Grades:
    path.write_bytes(data)
    return read_grades(str(path))


@pytest.mark.parametrize(
    "data",
    [
        PLAIN,
        b"url,grade\n" + PLAIN,
        b"\xef\xbb\xbf" + PLAIN.replace(b"\n", b"\r\n\r\n"),
        b"adresse,note\n" + PLAIN,
        b"who,Grade , URL\n" + b"me,3,https://a.example/\nme,1.5,https://b.example/x",
        gzip.compress(PLAIN, mtime=0),
        b'"https://a.example/", 3\n"https://b.example/x",15e-1',
        b'why,url,grade\n"good,\n""very""",https://a.example/,3\r\n\r\n"",https://b.example/x,1.5\r\n',
    ],
)
def test_columns_may_have_names(data: bytes, tmp_path: Path) -> None:
    found = read(tmp_path / "g.csv", data)
    assert (found.texts, found.values.tolist(), found.repeated) == (
        ["https://a.example/", "https://b.example/x"],
        [3, 1.5],
        0,
    )
    assert found.pages.tolist() == found.written.tolist() == page_ids(found.texts).tolist()


def test_several_grades_of_a_page_are_replaced_by_their_mean(tmp_path: Path) -> None:
    found = read(tmp_path / "g.csv", b"https://A.example,1\nhttps://b.example/,4\nhttps://a.example/#x,4\n")
    assert (found.texts, found.values.tolist(), found.repeated) == (
        ["https://A.example", "https://b.example/"],
        [2.5, 4],
        1,
    )
    assert found.pages.tolist() == page_ids(["https://a.example/", "https://b.example/"]).tolist()
    assert found.written.tolist() == page_ids(found.texts).tolist()


def test_the_mean_over_graders_and_the_grades_of_each_are_kept(tmp_path: Path) -> None:
    data = b"site,grade,grader\na.example,1,Ana\nb.example,4,Ana\na.example,2,Ben\nb.example,4,Ben\na.example,4,Ana\n"
    found = read(tmp_path / "g.csv", data + b"c.example,3, Ben \n")
    assert (found.texts, found.values.tolist(), found.scale.tolist()) == (
        ["a.example", "b.example", "c.example"],
        [3, 4, 3],
        [2, 3, 4],  # the last grade of each person counts
    )
    assert found.repeated == 1
    assert [(who, dict(zip(rows.tolist(), grades.tolist(), strict=True))) for who, rows, grades in found.graders] == [
        ("Ana", {0: 4, 1: 4}),
        ("Ben", {0: 2, 1: 4, 2: 3}),
    ]


def test_means_do_not_depend_on_the_order_of_grades(tmp_path: Path) -> None:
    rows = [
        f"{page},{grade}"
        for page, some in (("a", "123"), ("b", "321"), ("c", "231"))
        for grade in map("0.{}".format, some)
    ]
    assert len(set(read(tmp_path / "g.csv", "\n".join(["site,grade", *rows]).encode()).values.tolist())) == 1


def test_graders_are_bounded(tmp_path: Path) -> None:
    rows = "".join(f"a.example,1,who-{number}\n" for number in range(1001))
    with pytest.raises(InputRefused, match="1,001 graders: give 1,000 at most, or no names"):
        read(tmp_path / "g.csv", ("site,grade,grader\n" + rows).encode())


def test_sites_are_taken_as_they_are_written(tmp_path: Path) -> None:
    found = read(tmp_path / "g.csv", b"site,grade\nexample.org,-1\nexample.net,2\n")
    assert found.texts == ["example.org", "example.net"]
    assert found.pages.tolist() == found.written.tolist() == page_ids(found.texts).tolist()


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "no grade is in it"),
        (b"url,grade\n\n", "no grade is in it"),
        (b"https://a.example/,good\n", "line 1: 'good' is no grade"),
        (b"example.org,good\n", "line 1: 'good' is no grade"),
        (PLAIN + b"https://c.example/,\n", "line 3: '' is no grade"),
        (PLAIN + b"\nhttps://c.example/,nan\n", "line 4: 'nan' is no grade"),
        (PLAIN + b"https://c.example/,1e400\n", "line 3: '1e400' is no grade"),
        (PLAIN + b"https://c.example/,\x1b[31m\n", r"line 3: '\\x1b[31m' is no grade"),
        (PLAIN + b"https://c.example/,3,4\n", "line 3: 3 columns, not 2"),
        (PLAIN + b"https://c.example/\n", "line 3: 1 columns, not 2"),
        (PLAIN + b" ,3\n", "line 3: no URL"),
        (b"grader,url,grade\nme,https://a.example/,3\n ,https://a.example/,3\n", "line 3: no grader: write a name"),
        (b"https://a.example/;3\n", "line 1: 1 columns: write a URL and a grade"),
        (b"url,who,points\nhttps://a.example/,me,3\n", "line 1: 3 columns: write a URL and a grade, or name"),
        (PLAIN + b"\xe9,3\n", "line 3: not UTF-8"),
        (PLAIN + b'"https://c.example/,3\n', "line 3: "),
        (gzip.compress(PLAIN, mtime=0)[:-9], "damaged"),
    ],
)
def test_a_wrong_line_is_refused_in_one_line(data: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputRefused) as refused:
        read(tmp_path / "g.csv", data)
    assert words in str(refused.value) and "g.csv" in str(refused.value)
    assert str(refused.value).isprintable()


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="no such file"):
        read_grades(str(tmp_path / "none.csv"))
