"""Finds the links of an HTML page in linear time.

It scans for tags and builds no tree. lexbor builds one, and takes 105 s for a page of 1 MB that never closes a <div>.
"""

from __future__ import annotations

import codecs
import encodings
import html
import pkgutil
import re
from collections.abc import Iterator
from encodings.aliases import aliases
from functools import cache
from html.entities import html5

import ada_url

from opicflow.schemas.crawl_events import (
    MOST_EVENT_BYTES,
    MOST_LINKS,
    EventRefused,
    Link,
    Reason,
)
from opicflow.schemas.urls import PLAIN_PATH

MOST_JOINED_BYTES = 4 * MOST_EVENT_BYTES
"""A page is refused if the base URLs and the links that have to be joined are longer, all together.

Every relative link costs as much time as its base is long, also where the result is short.
"""
MOST_JOINED_LINK_BYTES = 64 << 10
"""A longer link stays as it is: it is no URL of a page. A page with a longer base URL is refused."""
_MOST_SNIFFED_BYTES = 1024
_MOST_DIGITS = 7
"""The greatest character, 0x10FFFF, has seven decimal digits."""

_CHARSET = re.compile(r"charset\s*=\s*(?:[\"']\s*)?([\w.:-]+)", re.IGNORECASE | re.ASCII)
_CODECS = ("utf-8", "utf-16", "iso8859", "cp", "koi8", "gb", "big5", "euc", "shift_jis", "mac-", "tis-620")
_WIDER = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}

_SPACE = "\t\n\f\r "
_RAW = "iframe|noembed|noframes|script|style|textarea|title|xmp"
_NAMES = f"template|a|area|base|frame|link|meta|plaintext|{_RAW}"
_SCAN = re.compile(
    rf"""<(?! /(?!template) | (?!(?:{_NAMES})>)[a-z0-9]+>)  # most tags are such: they are passed fast
      (?: (!--) | ([!?]) | (/?template|{_NAMES})(?=[{_SPACE}/>])
      | [a-z][^<>"']*(?:"[^"<>]*"[^<>"']*|'[^'<>]*'[^<>"']*)*(?=<|"[^"<>]*[<>]|'[^'<>]*[<>])  # with < or > in a value
      )""",
    re.IGNORECASE | re.VERBOSE,
)
_NAME = re.compile(rf"</?[^{_SPACE}/>]*")
_ATTRIBUTE = re.compile(
    rf"""[{_SPACE}/]*(?:(>)|([^{_SPACE}/>][^{_SPACE}/>=]*)"""
    rf"""(?:[{_SPACE}]*=[{_SPACE}]*(?:"([^"]*)"|'([^']*)'|([^{_SPACE}>]*)))?|\Z)"""
)
"""Matches at every position: a search that fails at the end of many blanks would be repeated from each blank."""
_READ = frozenset(("href", "src", "rel", "name", "content"))
_END_OF_RAW = {name: re.compile(rf"</{name}(?=[{_SPACE}/>])", re.IGNORECASE) for name in _RAW.split("|")}
_REFERENCE = re.compile(r"&(?:#(?:([xX])0*([0-9a-fA-F]+)|0*([0-9]+));?|([a-zA-Z][a-zA-Z0-9]*)(;?)(=?))")
_ROBOTS_WITH_COLON = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")


def decode_html(payload: bytes, content_type: str | None) -> str:
    declared = _CHARSET.search((content_type or "")[:_MOST_SNIFFED_BYTES])
    declared = declared or _CHARSET.search(payload[:_MOST_SNIFFED_BYTES].decode("latin-1"))
    codec = _codec(declared[1]) if declared else "utf-8"
    if payload.startswith(b"\xef\xbb\xbf") or not codec.startswith(_CODECS):
        codec = "utf-8"
    return payload.decode(_WIDER.get(codec, codec), "replace")


def _codec(name: str) -> str:
    """Return the name of a codec of Python. Others are not looked up: Python keeps every name it has looked for."""
    name = encodings.normalize_encoding(name).lower()
    for known in (name, name.replace(".", "_")):
        if known in _names_of_codecs():
            try:
                return codecs.lookup(known).name
            except (LookupError, ValueError):
                break
    return "utf-8"


@cache
def _names_of_codecs() -> frozenset[str]:
    return frozenset((*aliases, *(module.name for module in pkgutil.iter_modules(encodings.__path__))))


def _elements(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the tags that matter here with their attributes, as an HTML tokenizer finds them, in linear time."""
    at = templates = 0
    while found := _SCAN.search(text, at):
        at = found.end()
        comment, bogus, name = found.groups()
        if comment:
            # `<!-->` and `<!--->` are whole comments.
            closing = re.compile(r"(?<=<!--)-?>|--!?>").search(text, at)
            if not closing:
                return
            at = closing.end()
            continue
        if bogus:
            at = text.find(">", at) + 1
            if not at:
                return
            continue
        if not name:
            tag = _NAME.match(text, found.start())
            at = tag.end() if tag else at
        name = (name or "").lower()
        at, attributes = _attributes(text, at, bool(name))
        if at < 0 or name == "plaintext":
            return
        if name in ("template", "/template"):
            templates = max(templates + (1 if name == "template" else -1), 0)
        elif name and not templates:
            yield name, attributes
        if name in _END_OF_RAW:
            closing = _END_OF_RAW[name].search(text, at)
            if not closing:
                return
            at = closing.end()


def _attributes(text: str, at: int, kept: bool) -> tuple[int, dict[str, str]]:
    """Return where the tag ends (-1 if it does not end) and its attributes."""
    attributes: dict[str, str] = {}
    for found in _ATTRIBUTE.finditer(text, at):
        end, name, double, single, bare = found.groups()
        if end:
            return found.end(), attributes
        if not name:
            break
        if bare and bare[0] in "\"'":
            return -1, {}  # the closing quotation mark is missing
        if kept and (name := name.lower()) in _READ and name not in attributes:
            value = double or single or bare or ""
            attributes[name] = _REFERENCE.sub(_character, value) if "&" in value else value
    return -1, {}


def _character(found: re.Match[str]) -> str:
    """Return the character of a reference in an attribute. `&copy` is ©; `&copy=1` and `&copyright` are plain text."""
    hexadecimal, hex_digits, digits, name, semicolon, equals = found.groups()
    if not name:
        digits = hex_digits or digits
        return "\ufffd" if len(digits) > _MOST_DIGITS else html.unescape(f"&#{hexadecimal or ''}{digits};")
    if equals:
        return found[0]
    return html5.get(name + semicolon, found[0])


class LinkResolver:
    """Makes the links of a page absolute. A link that cannot be resolved stays unchanged; the router counts it."""

    def __init__(self, url: str, base: str = "") -> None:
        self._joined_bytes = 0
        self._base, self._origin = url, ""
        if len(base) > MOST_JOINED_LINK_BYTES:
            raise EventRefused(Reason.TOO_LARGE, f"the base URL is longer than {MOST_JOINED_LINK_BYTES} bytes")
        self._base = self.absolute(base) if base else url
        if not self._base.startswith(("http:", "https:")):
            self._base = url
        self._size_bytes = 0

    def absolute(self, link: str) -> str:
        link = link.strip("\0\t\n\f\r ")
        if link.startswith(("https://", "http://")):
            return link
        given = link
        if len(link) > MOST_JOINED_LINK_BYTES:
            link = link.partition("#")[0]  # a page's URL has no fragment
            if len(link) > MOST_JOINED_LINK_BYTES:
                return given
        self._joined_bytes += len(self._base) + len(link)
        if self._joined_bytes > MOST_JOINED_BYTES:  # before joining: a long base would multiply the time for a page
            detail = f"base and links of the page are longer than {MOST_JOINED_BYTES} bytes when joined"
            raise EventRefused(Reason.TOO_LARGE, detail)
        try:
            if not PLAIN_PATH.fullmatch(link):
                return ada_url.join_url(self._base, link)
            self._origin = self._origin or ada_url.join_url(self._base, "/")[:-1]
            return self._origin + link
        except ValueError:
            return given

    def link(self, link: str, rel: str | None) -> Link:
        found = self.absolute(link)
        self._size_bytes += len(found)
        if self._size_bytes > MOST_EVENT_BYTES:  # a long base URL would multiply the size of the page
            raise EventRefused(Reason.TOO_LARGE, f"the links of the page are longer than {MOST_EVENT_BYTES} bytes")
        return Link(found, None, rel)


def links_of_html(text: str, url: str, robots: str) -> tuple[tuple[Link, ...], str | None]:
    """Return the links of a page and its canonical URL, both absolute."""
    found: list[tuple[str, str | None]] = []
    base = canonical = ""
    nofollow = is_nofollow_rule(robots)
    for name, attributes in _elements(text):
        address = attributes.get("src" if name in ("frame", "iframe") else "href")
        rel = attributes.get("rel")
        if name == "meta":
            if attributes.get("name", "").strip().lower() == "robots":
                nofollow |= is_nofollow_rule(attributes.get("content", ""))
        elif address is None:
            continue
        elif name == "base":
            base = base or address
        elif name == "link":
            if "canonical" in (rel or "").lower().split():
                canonical = canonical or address
        elif name in ("a", "area", "frame", "iframe"):
            found.append((address, rel if name in ("a", "area") else None))
            if len(found) > MOST_LINKS:
                break
    return resolved_links(found, url, base, canonical, nofollow)


def resolved_links(
    found: list[tuple[str, str | None]], url: str, base: str, canonical: str, nofollow: bool
) -> tuple[tuple[Link, ...], str | None]:
    if len(found) > MOST_LINKS:
        raise EventRefused(Reason.TOO_MANY_LINKS, f"the page has more than {MOST_LINKS} links")
    resolver = LinkResolver(url, base)
    links = (resolver.link(address, _with_nofollow(rel) if nofollow else rel) for address, rel in found)
    return tuple(links), resolver.absolute(canonical) if canonical else None


def _with_nofollow(rel: str | None) -> str:
    return rel if rel and "nofollow" in rel.lower().split() else f"{rel or ''} nofollow".strip()


def is_nofollow_rule(robots: str) -> bool:
    agent, colon, _ = robots.partition(":")
    if colon and "," not in agent and agent.strip().lower() not in _ROBOTS_WITH_COLON:
        return False  # a rule for one crawler
    return not {"nofollow", "none"}.isdisjoint(word.strip().lower() for word in robots.split(","))
