"""The report loads nothing, shows all its values, and runs no code that a crawled page could inject."""

from __future__ import annotations

import dataclasses
import math
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opicflow.pipelines.replay.report import Report, Sample, SiteTotals, TopPage, render

VOID = {"meta"}
LISTENS_OR_LOADS = {"action", "background", "data", "formaction", "poster", "src", "srcdoc", "srcset", "xlink:href"}
ELEMENTS = re.compile(
    "html|head|meta|title|style|body|main|header|section|h1|h2|p|dl|div|dt|dd|ul|ol|li|figure|figcaption|span|"
    "svg|g|path|rect|text|table|thead|tbody|tr|th|td|a|bdi|small|code"
)
# Text that must be escaped: markup, quotes, controls, directions, lone surrogates, and format strings of Python.
HOSTILE = [
    "</script><svg onload=alert(1)>",
    "</title></style><script>alert(1)</script>",
    '" onmouseover="alert(1)" x=\'',
    "<!--",
    "]]>&lt;&#60;&amp",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "https://example.org/\u202egnp.exe",
    "https://example.org/\" style=\"background:url('//evil.example')",
    "https://example.org/?a\x00b\x1b[31m\x7f\x85\u2028",
    "\ud800 half \udfff",
    "\u05e9\u05dc\u05d5\u05dd \U0001f600\U0001f469\u200d\U0001f467 \ufeff\uffff",
    "{0} {title} %s %(title)s \\g<0>",
    "https://example.org/" + "long/" * 1_600,
]

EMPTY = Report("", {}, (), (), (), (), {}, {}, (), ())
URLS = [f"https://example.org/{number}" for number in range(12)]
TOP = tuple(TopPage(n, url, 0.1 / (n + 1), 9.0 / (n + 1), 0.001, 5, "fetched", True) for n, url in enumerate(URLS))
SAMPLES = tuple(
    Sample(k * 1_000, k * 3_600_000, k * 900, k * 50, k * 20, 0.3 / k, tuple((one.page, one.importance) for one in TOP))
    for k in range(1, 8)
)
SUMMARY: dict[str, int | float | str] = {
    "events_read": 7_000,
    "visits": 6_300,
    "announcements": 600,
    "rejects": 60,
    "duplicates": 40,
    "late": 3,
    "pages": 350,
    "links": 12_345_678,
    "seconds": 12.5,
    "events_per_second": 560.0,
    "something_new": 98_765,
    "runner": "DirectRunner",
}
FULL = Report(
    title="A small crawl",
    summary=SUMMARY,
    samples=SAMPLES,
    top=TOP,
    hosts=(SiteTotals("example.org", 300, 100, 0.7), SiteTotals("example.com", 50, 40, 0.3)),
    score_counts=((0.1, 1.0, 300), (1.0, 10.0, 49), (10.0, 100.0, 1)),
    idle={"failed": 0.04, "unchanged": 0.2},
    rejects={"not-json": 50, "bad-field": 10},
    reject_examples=(("not-json", "crawl.jsonl:7", '{"url": '),),
    notes=("Links are never known for 30 % of the visits.",),
)


class Page(HTMLParser):
    """A parsed report. Parsing asserts the properties of every report."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert self.opened == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert ELEMENTS.fullmatch(tag)
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)) and not LISTENS_OR_LOADS & set(names)
        assert not any(name.startswith("on") for name in names)
        held = {name: value or "" for name, value in attrs}
        if "href" in held:
            assert tag == "a" and held["href"].startswith(("http://", "https://"))
            assert held["rel"] == "noopener noreferrer nofollow"
        if "style" in held:
            assert re.fullmatch(r"--share:\d+\.\d%", held["style"])
        for name in {"x", "y", "width", "height", "d"} & set(held):
            assert "nan" not in held[name] and "inf" not in held[name]
        self.elements.append((tag, held))
        if tag not in VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.opened and self.opened[-1] == "style":
            assert "url(" not in data and "@import" not in data
        else:
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def attributes(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        return [held for name, held in self.elements if name == tag and wanted.items() <= held.items()]


def parsed(report: Report) -> Page:
    page = render(report)
    page.encode("utf-8")
    assert all(c.isprintable() or c == "\n" for c in page)
    assert page.count("<meta http-equiv") == 1
    return Page(page)


def lines(report: Report, name: str) -> list[str]:
    """Return the paths of the lines with this name. Each part of a path begins with M."""
    return re.findall(rf'<title>{re.escape(name)}</title><path d="([^"]*)">', render(report))


# Any report

texts = st.one_of(st.text(max_size=40), st.sampled_from(HOSTILE), st.text(st.characters(categories=["Cc", "Cf", "Cs"])))
counts = st.one_of(st.integers(0, 10_000), st.integers(0, 2**200), st.just(0))
shares = st.one_of(st.floats(0, 1), st.floats(), st.just(0.0))
page_ids = st.integers(0, 5)
reports = st.builds(
    Report,
    title=texts,
    summary=st.dictionaries(texts, st.one_of(counts, shares, texts), max_size=4),
    samples=st.lists(
        st.builds(
            Sample,
            events=counts,
            time_ms=st.integers(-(2**70), 2**70),
            visits=counts,
            pages=counts,
            pages_read=counts,
            idle_share=shares,
            top=st.lists(st.tuples(page_ids, shares), max_size=4).map(tuple),
        ),
        max_size=5,
    ).map(tuple),
    top=st.lists(
        st.builds(TopPage, page_ids, texts, shares, shares, shares, counts, texts, st.booleans()), max_size=12
    ).map(tuple),
    hosts=st.lists(st.builds(SiteTotals, texts, counts, counts, shares), max_size=3).map(tuple),
    score_counts=st.lists(st.tuples(shares, shares, counts), max_size=6).map(tuple),
    idle=st.dictionaries(texts, shares, max_size=3),
    rejects=st.dictionaries(texts, counts, max_size=3),
    reject_examples=st.lists(st.tuples(texts, texts, texts), max_size=3).map(tuple),
    notes=st.lists(texts, max_size=3).map(tuple),
)


@settings(deadline=None, max_examples=150)
@given(reports)
def test_any_report_is_a_balanced_page_that_runs_and_loads_nothing(report) -> None:
    parsed(report)


@settings(deadline=None, max_examples=50)
@given(reports)
def test_the_same_report_gives_the_same_bytes(report) -> None:
    assert render(report) == render(dataclasses.replace(report, summary=dict(report.summary)))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_in_any_field_is_shown_and_never_becomes_markup(text) -> None:
    report = Report(
        title=text,
        summary={text: text},
        samples=SAMPLES,
        top=(dataclasses.replace(TOP[0], url=text, last_outcome=text),),
        hosts=(SiteTotals(text, 1, 1, 1.0),),
        score_counts=(),
        idle={text: 0.1},
        rejects={text: 1},
        reject_examples=((text, text, text),),
        notes=(text,),
    )
    plain = dataclasses.replace(
        report,
        title="t",
        summary={"t": "t"},
        top=(dataclasses.replace(TOP[0], url="t", last_outcome="t"),),
        hosts=(SiteTotals("t", 1, 1, 1.0),),
        idle={"t": 0.1},
        rejects={"t": 1},
        reject_examples=(("t", "t", "t"),),
        notes=("t",),
    )
    page = parsed(report)
    assert [tag for tag, _ in page.elements if tag != "a"] == [tag for tag, _ in parsed(plain).elements]
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    whole = page.texts + [held.get("title", "") for _, held in page.elements]
    assert sum(shown in one for one in whole) >= 12


def test_the_security_policy_forbids_all_but_the_style_in_the_page() -> None:
    (policy,) = parsed(FULL).attributes("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].split("; ") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


@pytest.mark.parametrize(
    ("url", "is_link"),
    [
        ("https://example.org/", True),
        ("http://example.org/?q=<b>&c='\"", True),
        ("javascript:alert(1)", False),
        (" https://example.org/", False),
        ("//example.org/", False),
        ("https://example.org/\u202egnp.exe", False),
        ("https://example.org/\n", False),
    ],
)
def test_only_web_addresses_that_lead_to_the_shown_host_are_links(url, is_link) -> None:
    page = parsed(dataclasses.replace(FULL, top=(dataclasses.replace(TOP[0], url=url),)))
    assert {held["href"] for held in page.attributes("a")} == ({url} if is_link else set())


def test_a_long_url_is_shortened_but_complete_in_its_link_and_tooltip() -> None:
    url = "https://example.org/" + "x" * 8_000
    page = parsed(dataclasses.replace(FULL, top=(dataclasses.replace(TOP[0], url=url),)))
    assert page.attributes("bdi", title=url) and page.attributes("a", href=url)
    assert [len(text) for text in page.texts if text.startswith("https") and "…" in text] == [90, 160]


@pytest.mark.parametrize("share", [5e-324, 1e-100, 9e99, 1e100, 1e308, math.inf, math.nan, -1.0])
def test_impossible_shares_are_left_out_of_the_drawings(share) -> None:
    samples = (SAMPLES[0], dataclasses.replace(SAMPLES[1], idle_share=share, top=((0, share),)))
    bins = ((0.0, share, 3), (share, 1.0, 4), (share / 2, share, 5))
    parsed(dataclasses.replace(FULL, samples=samples, score_counts=bins, idle={"failed": share}))
    parsed(dataclasses.replace(FULL, samples=samples[1:], score_counts=bins[:1]))


# -- content


def test_an_empty_report_has_a_note_in_every_section() -> None:
    page = parsed(EMPTY)
    assert "Crawl report" in page.texts
    assert len(page.attributes("p", **{"class": "nothing"})) == 10
    assert page.attributes("svg") == []


@pytest.mark.parametrize("samples", [(), SAMPLES[:1], (dataclasses.replace(SAMPLES[0], events=0, visits=0, pages=0),)])
def test_few_or_zero_samples_make_a_page(samples) -> None:
    parsed(dataclasses.replace(FULL, samples=samples))


def test_every_number_of_the_summary_appears_known_or_not() -> None:
    page = parsed(FULL)
    assert {key.replace("_", " ") for key in SUMMARY} <= set(page.texts)
    assert {"7,000", "6,300", "600", "60", "40", "3", "350", "12,345,678", "12.5", "560", "98,765"} <= set(page.texts)
    assert "DirectRunner" in page.texts


def test_the_summary_shows_whether_every_event_is_accounted_for() -> None:
    assert any("all are accounted for." in text for text in parsed(FULL).texts)
    lossy = dataclasses.replace(FULL, summary={**SUMMARY, "duplicates": 28})
    assert any("not so, 12 are missing" in text for text in parsed(lossy).texts)
    assert not any("Events read" in text for text in parsed(EMPTY).texts)


def test_the_summary_says_how_near_to_exact_importance_is() -> None:
    certified = dataclasses.replace(FULL, summary={**SUMMARY, "certificate": 8.701e-05})
    said = "Importance is within 0.0088 % of the exact ranks of the graph seen (certified)."
    assert any(said in text for text in parsed(certified).texts)
    assert not any("certified" in text for text in parsed(FULL).texts)


def test_the_time_of_the_crawl_is_that_of_the_samples_with_times() -> None:
    times = [0, 1_700_000_000_000, 1_700_090_000_000, 10**30]
    samples = tuple(dataclasses.replace(SAMPLES[0], time_ms=time_ms) for time_ms in times)
    (line,) = [text for text in parsed(dataclasses.replace(FULL, samples=samples)).texts if "Crawled" in text]
    assert line.startswith("Crawled from 2023-11-14 to 2023-11-15 (UTC).")


def test_a_line_of_the_movement_has_a_gap_where_its_page_is_missing() -> None:
    (whole,) = lines(FULL, f"1: {URLS[0]}")
    assert (whole.count("M"), whole.count("L")) == (1, 6)
    missing = tuple(
        dataclasses.replace(sample, top=tuple(one for one in sample.top if one[0] != 0)) if k in (0, 3, 5) else sample
        for k, sample in enumerate(SAMPLES)
    )
    gaps = dataclasses.replace(FULL, samples=missing)
    (broken,) = lines(gaps, f"1: {URLS[0]}")
    runs = broken.split("M")[1:]
    assert [run.count("L") for run in runs] == [1, 0, 0]  # two samples, and twice one alone, which is a dash
    assert [run.endswith("h8") for run in runs] == [False, True, True]
    assert lines(gaps, f"2: {URLS[1]}") == lines(FULL, f"2: {URLS[1]}")


def test_only_the_final_top_ten_move() -> None:
    assert lines(FULL, f"10: {URLS[9]}") and not lines(FULL, f"11: {URLS[10]}")


@pytest.mark.parametrize("before", [1e-4, 0.01, 1.0])
def test_labels_of_lines_that_end_together_at_the_top_or_bottom_do_not_overlap(before) -> None:
    samples = [dataclasses.replace(SAMPLES[0], top=tuple((one.page, x) for one in TOP)) for x in (before, 0.01)]
    page = parsed(dataclasses.replace(FULL, samples=tuple(samples)))
    heights = sorted(float(held["y"]) for held in page.attributes("text") if held["class"].startswith("rank"))
    assert len(heights) == 10 and heights[-1] <= 250 and heights[0] >= 20
    assert min(b - a for a, b in pairwise(heights)) >= 13.9


@pytest.mark.parametrize("most", [1, 3, 7, 99, 1_000, 123_456, 10**9, 10**17, 10**40])
def test_labels_of_an_axis_are_short_few_and_apart(most) -> None:
    samples = tuple(dataclasses.replace(SAMPLES[0], events=e, visits=e, pages=e) for e in (0, most // 2, most))
    found = re.findall(
        r'<text x="([\d.]+)" y="257.0" text-anchor="middle" class="axis">(.*?)</text>',
        render(dataclasses.replace(FULL, samples=samples, score_counts=((1 / most, most, most),))),
    )
    assert len(found) >= 6 and all(len(label) <= 7 for _, label in found)
    positions = [float(x) for x, _ in found]
    assert all(b - a >= 7 * 7 or b <= a for a, b in pairwise(positions))


def test_pages_without_a_score_have_no_bar_and_bars_grow_with_pages() -> None:
    bars = parsed(dataclasses.replace(FULL, score_counts=((0.0, 0.0, 9), *FULL.score_counts))).attributes("rect")
    heights = [float(bar["height"]) for bar in bars]
    assert len(bars) == 3 and heights == sorted(heights, reverse=True) and heights[-1] > 10


@pytest.mark.parametrize(
    ("importance", "trend", "shown"),
    [
        (0.1, 0.005, "↑ 5 %"),
        (0.1, -0.02, "↓ 20 %"),
        (0.1, 0.0, "→ steady"),
        (0.0, 0.1, "—"),
        (0.1, math.nan, "—"),
        (math.nan, 0.1, "—"),
    ],
)
def test_the_trend_is_a_share_of_the_importance_a_day(importance, trend, shown) -> None:
    one = dataclasses.replace(TOP[0], importance=importance, trend_per_day=trend)
    assert shown in parsed(dataclasses.replace(FULL, top=(one,), hosts=(), idle={})).texts


def test_a_page_without_a_measured_history_is_marked_as_default() -> None:
    guessed = (dataclasses.replace(TOP[0], measured=False), *TOP[1:])
    assert parsed(dataclasses.replace(FULL, top=guessed)).texts.count("default history") == 1
    assert "default history" not in parsed(FULL).texts


def test_rejects_and_idle_cash_are_sorted_from_the_greatest_with_examples() -> None:
    texts = parsed(FULL).texts
    for first, second in [("not-json", "bad-field"), ("unchanged", "failed")]:
        assert texts.index(first) < texts.index(second)
    assert {"20 %", "4 %", "50", "10", "crawl.jsonl:7", '{"url": '} <= set(texts)


def test_drawings_have_texts_for_screen_readers() -> None:
    page = parsed(FULL)
    headings = [tag for tag, _ in page.elements if tag in ("h1", "h2")]
    assert headings == ["h1"] + ["h2"] * 7
    assert all(held["scope"] in ("col", "row") for held in page.attributes("th"))
    drawings = page.attributes("svg", **{"class": "plot"})
    assert len(drawings) == 4 and all(one["role"] == "img" and one["aria-label"] for one in drawings)
    assert all(one["aria-hidden"] == "true" for one in page.attributes("svg", **{"class": "swatch"}))
    assert page.attributes("html", lang="en")
