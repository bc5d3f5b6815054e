"""URLs as people write them, and their canonical forms: one by one by the library, and in a batch by the kernel."""

from __future__ import annotations

import numpy as np

from opicflow.schemas.url_forms import ABSENT, NO_PAGE, PAGE
from opicflow.schemas.urls import (
    NO_RULES,
    SESSION_PARAMETERS,
    TRACKING_PARAMETERS,
    Canonicaliser,
    NotAPage,
    UrlRules,
    canonical,
)
from support.page_ids import reference_page_id

RULES = [
    NO_RULES,
    UrlRules(fold_www=True),
    UrlRules(fold_https=True),
    UrlRules(drop_parameters=(*TRACKING_PARAMETERS, *SESSION_PARAMETERS)),
    UrlRules(drop_parameters=("jsess*", "A", "b"), fold_www=True, fold_https=True),
]

PLAIN = [
    "http://example.com/",
    "https://example.com/",
    "https://www.example.com/",
    "https://en.wikipedia.org/wiki/PageRank",
    "https://en.wikipedia.org/wiki/Marge_(disambiguation)",
    "https://en.wikipedia.org/w/index.php?title=PageRank&action=history",
    "https://de.wikipedia.org/wiki/K%C3%B6ln",
    "https://www.youtube.com/watch?v=dQw4w9WgXcQ",
    "https://www.youtube.com/@somebody/videos",
    "https://github.com/apache/beam/blob/master/sdks/python/setup.py#L12",
    "https://github.com/apache/beam/issues?q=is%3Aissue+is%3Aopen",
    "https://news.ycombinator.com/item?id=1234567",
    "https://stackoverflow.com/questions/11227809/why-is-processing-a-sorted-array-faster",
    "https://www.amazon.com/dp/B000000000/ref=sr_1_1?keywords=web&qid=1",
    "https://www.nytimes.com/2020/01/02/technology/page.html",
    "https://www.bbc.co.uk/news/world-europe-12345678",
    "http://blog.example.org/2019/05/some-post/#comments",
    "http://blog.example.org/?p=12",
    "https://shop.example.de/category/shoes;color=red?sort=price,asc",
    "https://maps.example.com/@48.1,11.5,12z/data=!3m1!4b1",
    "https://docs.python.org/3/library/re.html",
    "https://arxiv.org/abs/1001.0001v2",
    "https://doi.org/10.1145/775152.775192",
    "https://t.co/AbCdEfGhIj",
    "https://medium.com/@someone/a-title-0123456789ab",
    "https://web.archive.org/web/20200101000000/http://example.com/",
    "https://example.com/a//b",
    "https://example.com/file.tar.gz",
    "https://example.com/~user/",
    "https://example.com/a-b_c~d!e$f&g(h)i*j+k,l;m=n:o@p",
    "https://example.com/search?q=a+b&x[]=1&x[]=2",
    "https://example.com/search?q=%22quoted%22",
    "https://example.com/?a=b?c/d",
    "https://3m.example.com/",
    "https://a--b.example.com/",
    "https://sub-domain.of.a-long-name.example.museum/x/y/z",
    "http://www.host1805.example/section6/page-1805.html",
    "https://cdn.example.net/img/logo.png?v=1.2.3",
    "https://example.com/index.jsp;x=y",
    "https://example.com/a/b/c/d/e/f/g/h",
    "https://example.com/%7Euser/%E2%82%AC",
    "https://example.com/feed.xml",
    "https://example.com/robots.txt",
    "https://example.com/tag/c%2B%2B/page/2/",
    "https://example.com/article,12345.html",
    "https://example.com/a.b.c...d",
    "https://example.com/path/?utm_source=x&utm_medium=y",
    "https://example.com:8443/admin/",
    "http://192.0.2.1/status",
    "https://xn--bcher-kva.example/",
]


def columns(given: list[bytes], before: bytes = b"\xff") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ends = np.cumsum([len(url) for url in given], dtype=np.int64) + len(before)
    lengths = np.array([len(url) for url in given], np.int64)
    return np.frombuffer(before + b"".join(given), np.uint8), ends - lengths, ends


def form_of(url: bytes, base: bytes | None = None, rules: UrlRules = NO_RULES) -> bytes | None:
    try:
        return canonical(url.partition(b"#")[0].decode(), None if base is None else base.decode(), rules)
    except (NotAPage, UnicodeError):
        return None


def in_a_batch(
    given: list[bytes | None], bases: list[int] | None = None, rules: UrlRules = NO_RULES
) -> list[bytes | None]:
    text, begins, ends = columns([url or b"" for url in given])
    absent = np.array([url is None for url in given], bool)
    begins[absent] = ends[absent] = -1
    base_of = np.array(range(len(given)) if bases is None else bases, np.int64)
    before = begins.copy(), ends.copy()
    found = Canonicaliser(rules).canonicalise(text, begins, ends, base_of)
    assert (begins == before[0]).all() and (ends == before[1]).all()
    forms: list[bytes | None] = []
    for row, state in enumerate(found.states):
        assert state in (PAGE, NO_PAGE, ABSENT) and (state == ABSENT) == (given[row] is None)
        form = found.text[found.begins[row] : found.ends[row]].tobytes() if state == PAGE else None
        assert found.ids[row] == (0 if form is None else reference_page_id(form))
        forms.append(form)
    return forms
