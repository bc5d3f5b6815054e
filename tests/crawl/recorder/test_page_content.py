"""The links of a page that a crawler reports are those of an archive; its visit has the data of Scrapy's answer."""

from __future__ import annotations

import hashlib

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, Response

from opicflow.connectors.files.html_links import decode_html, links_of_html
from opicflow.pipelines.crawl.recorder.recorder import content_of
from opicflow.pipelines.crawl.scrapy.middlewares import visit_of

URL = "https://a.example/d/p"


@pytest.mark.parametrize(
    "page",
    [
        '<a href="/a?b=1&amp;c=2#d">1</a> <A HREF=e rel="ugc nofollow">2</A> <area href="../f"> <a>none</a>',
        '<base href="/g/"><a href="h">1</a><a href="//c.example/i">2</a><iframe src="/j"></iframe>',
        '<meta name="ROBOTS" content="nofollow"><link rel="canonical" href="/k"><a href="/l/../m">1</a>',
        '<!-- <a href="/no"> --><a href="mailto:a@b.example">1</a><a href="/\u00e4">2</a>',
    ],
)
@pytest.mark.parametrize("charset", ["utf-8", "latin-1"])
@pytest.mark.parametrize("robots", ["", "nofollow"])
def test_the_links_of_a_page_that_scrapy_has_fetched_are_those_of_an_archive(
    page: str, charset: str, robots: str
) -> None:
    content_type, body = f"text/html; charset={charset}", page.encode(charset)
    answer = HtmlResponse(URL, body=body, headers={"Content-Type": content_type, "X-Robots-Tag": robots})
    event, content = visit_of(answer, Request(URL))
    visit = event | content_of(event, event.get("robots_tag", ""), content)
    links, canonical = links_of_html(decode_html(body, content_type), URL, robots)
    assert visit["links"] == [{"url": link.url, "rel": link.rel} if link.rel else link.url for link in links]
    assert visit.get("canonical") == canonical and visit["content_type"] == content_type
    assert visit["digest"] == hashlib.sha1(body, usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(
    "answer",
    [Response(URL, body=b"%PDF", headers={"Content-Type": "application/pdf"}), HtmlResponse(URL, body=b"")],
)
def test_an_answer_that_is_no_page_with_links_has_its_digest_at_once(answer: Response) -> None:
    event, body = visit_of(answer, Request(URL))
    assert event["links"] == [] and event["digest"] == hashlib.sha1(answer.body, usedforsecurity=False).hexdigest()
    assert body == b"" and "robots_tag" not in event and content_of(event, "", body) == {}


@pytest.mark.parametrize("status", [304, 404, 503])
def test_an_answer_without_content_of_its_page_has_no_links(status: int) -> None:
    event, body = visit_of(HtmlResponse(URL, status=status, body=b"<a href=b>"), Request(URL))
    assert event["status"] == status and body == b"" and event.keys().isdisjoint(("links", "digest"))
