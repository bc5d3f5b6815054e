"""Links as pages have them, and as attackers write them: made up, from a seed."""

from __future__ import annotations

from random import Random

_SCHEMES = [
    "http:",
    "https:",
    "HTTP:",
    "hTTps:",
    "ht\ttp:",
    "ftp:",
    "mailto:",
    "javascript:",
    "a+b-.1:",
    "1:",
    "+:",
    ":",
]
_SLASHES = ("", "/", "//", "\\", "\\/", "/\\\\", "///", "/\t/", "// ")
_USERS = ("", "", "", "", "u@", "u:p@", "u@v@", "\u00fc:@", "@", "a b@", "u%40:1@")
_HOSTS = (
    "a.b", "example.com", "www.example.com", "WWW.Example.COM", "www.www.a.com", "www.com", "www.com.", "a.b.", "a..b",
    ".a", "", "localhost", "a_b.c", "a-b.c", "-a.b-", "ab--c.d", "xn--bcher-kva.example", "XN--BCHER-kva.example",
    "www.xn--bcher-kva.example", "xn--a", "b\u00fccher.example", "B\u00dcCHER.example", "\uff41.b", "127.0.0.1",
    "www.127.0.0.1", "127.1", "0x7F.1", "1.2.3", "1.2.3.256", "4294967296", "a.1", "a.0x", "1a.b1", "[::1]",
    "[1:2::3]", "[::1", "[", "a%41.b", "a%2eb", "a b", "a<b", "a^b", "a|b", "a!b", "a'b", "a*b", "a\u00adb",
    "\u00df.de", "\u0645.\u0627", "a" * 70 + ".b",
)  # fmt: skip
_PORTS = (
    "",
    "",
    "",
    *["", ":80", ":443", ":8080", ":0080", ":00000443", ":0", ":65535", ":65536", ":8a", ":-1", ":"],
    ": 80",
)
_SEGMENTS = (
    "a", "b.html", "page-12", "index.php", "Wiki", "~kim", "x:y", "@", "", "", ".", "..", "...", ".a", "a.", "..a",
    "%2e", "%2E", ".%2e", "%2E.", "%2e%2E", "%2e%2e%2e", "%2", "%", "%zz", "%c3%A4", "a b", " ", ". ", "K\u00f6ln",
    "\u4e2d\u6587", "\U0001f986", 'a"b', "a'b", "<b>", "a`b", "{c}", "a|b", "a^b", "[x]", "\x7f", "\x00", "\x1f",
    "a\tb", "\n", ";v=1", ";jsessionid=A1", "x;JSESSIONID=2;y", "..;jsessionid=3", ";jsession", "..;JsessionId=",
    "C|", "$&+,;=!*()",
)  # fmt: skip
_NAMES = (
    *["a", "b", "A", "id", "q", "sid", "SID", "sidx", "utm_source", "UTM_x", "utm", "jsessionid", "kö", "?"],
    "",
    "a b",
)
_VALUES = (
    *["=", "=1", "=a+b", "=%20", "=x=y", "='q'", '="q"', "=<b>", "=ü", "={}`|^\\", "=a/../b", "=\t1", "=?", "=@:"],
    "",
)
_FRAGMENTS = ("", "", "", "", "#", "#top", "#a?b/../c#d", "#\u00fc", "# ", "#\t")
_NOISE = "/\\.?#%;&=:@ \t\n\r\x00\x1f\x7f'\"<>`{}|^[]azAZ09-_~w\u00e9\u20ac\U0001f600"


def raw_links(count: int, seed: int) -> list[bytes]:
    """Return links of all forms, with hostile parts and without; some are not UTF-8."""
    random = Random(seed)
    choose, chance = random.choice, random.random
    links = []
    for _ in range(count):
        parts = []
        if chance() < 0.5:
            parts.append(choose(_SCHEMES if chance() < 0.4 else ("http:", "https:")))
        if parts or chance() < 0.2:
            parts += [choose(_SLASHES) if chance() < 0.3 else "//", choose(_USERS), choose(_HOSTS), choose(_PORTS)]
        if chance() < 0.8:
            segments = [choose(_SEGMENTS) for _ in range(random.randrange(5))]
            parts.append((choose("/\\") if parts or chance() < 0.4 else "") + choose("///\\").join(segments))
        if chance() < 0.3:
            parts.append("?" + "&".join(choose(_NAMES) + choose(_VALUES) for _ in range(random.randrange(4))))
        if chance() < 0.3:
            parts.append(choose(_FRAGMENTS))
        text = "".join(parts)
        while chance() < 0.25:
            at = random.randrange(len(text) + 1)
            text = text[:at] + choose(_NOISE) * random.randrange(3) + text[at + random.randrange(2) :]
        link = text.encode()
        if chance() < 0.03:
            at = random.randrange(len(link) + 1)
            link = link[:at] + random.randbytes(1) + link[at + random.randrange(2) :]
        links.append(link)
    return links
