"""Kernels that read plain lines of JSON into columns of crawl events.

A plain line is an object of the known fields in plain ASCII, without escapes, each name at most once. The kernels are
strict: a line that they are not sure of is listed, for a reader that takes its time.
"""

from __future__ import annotations

import numpy as np

from opicflow.connectors.files.json_text import (
    ANNOUNCES,
    ANY_ESCAPES,
    CANONICAL,
    CODES,
    DIGEST,
    FAILURE,
    FIRST_MARK,
    KIND,
    LINK_NOFOLLOW,
    LINK_REL,
    LINK_URL,
    LINK_WEIGHT,
    LINKS,
    MARK,
    MARKS_ONLY,
    MODIFIED,
    NO_ESCAPES,
    NULL,
    OF_EVENTS,
    OF_KINDS,
    OF_LINKS,
    QUALITY,
    REDIRECTS,
    RETRY,
    STATUS,
    TIME,
    TRUE,
    TYPE,
    URL,
    WORDS,
    byte_or_0,
    code_of,
    digits,
    end_of_string,
    is_space,
    is_word,
    past_anything,
    past_space,
    past_string,
    past_value,
    tables_of,
    without_marks,
)
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.connectors.files.scan import Scan, new_scan
from opicflow.schemas.arrays import Bytes, Hashes, Int, Ints
from opicflow.schemas.crawl_events import (
    EARLIEST_MS,
    LATEST_MS,
    LONGEST_RETRY_SECONDS,
    MOST_EVENT_BYTES,
    MOST_LINKS,
    MOST_REDIRECTS,
)
from opicflow.schemas.event_columns import (
    BEST_QUALITY,
    FIRST_HOP,
    ORDINARY_WEIGHT,
    UNKNOWN_MEDIA,
    failure_status,
    media_of,
    says_nofollow,
    step_of_number,
)
from opicflow.schemas.hashing import byte_at, find_byte, hash_bytes, word_at
from opicflow.schemas.json_events import LEAST_MILLISECONDS, MONTHS
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

_NEWLINE = 10
_GMT = np.uint64(int.from_bytes(b" GMT", "little"))
_THREE_BYTES = np.uint32((1 << 24) - 1)
_MONTH_NAMES = np.array([int.from_bytes(name.encode(), "little") for name in MONTHS], np.uint32)


def scan_text(text: Bytes, first_offset: int, reading: Reading = ANY) -> Scan:
    """Read whole lines: those that are plain into rows, the others listed."""
    scan = _new_scan(text)
    scan_lines(text, first_offset, *tables_of(reading), scan)
    return scan


def scan_json(text: Bytes, begins: Ints, ends: Ints, offsets: Ints) -> Scan:
    """Read values that lie in a text with a newline after each: those that are plain into rows, the others listed."""
    scan = new_scan(len(offsets), _most_urls(text, len(offsets)))
    scan_values(without_marks(text), begins, ends, offsets, WORDS, CODES, scan)
    return scan


def _new_scan(text: Bytes) -> Scan:
    lines = int(np.count_nonzero(text == ord("\n"))) + 1
    return new_scan(lines, _most_urls(text, lines))


def _most_urls(text: Bytes, events: int) -> int:
    """Return how many URLs events may have: those in lists follow a comma, or their list does."""
    return (FIRST_HOP + 1) * events + int(np.count_nonzero(text == ord(",")))


@lean_kernel
def scan_lines(text: Bytes, first_offset: Int, words: Hashes, codes: Bytes, out: Scan) -> None:
    """Read every plain line of the text into a row; list the others, without those that are blank."""
    rows = np.int64(0)
    urls: Int = np.int64(0)
    odd = np.int64(0)
    size = text.shape[0]
    begin: Int = np.int64(0)
    out.url_starts[0] = 0
    while begin < size:
        end, used = _scan_event(text, begin, size, words, codes, out, rows, urls)
        if end >= 0:
            end = past_space(text, end, size)
        if end >= 0 and end - begin <= MOST_EVENT_BYTES and (end == size or text[end] == 10):
            out.offset[rows] = first_offset + begin
            urls = used
            rows += 1
            out.url_starts[rows] = urls
        else:
            end = find_byte(text, begin, size, _NEWLINE)
            last = end
            while last > begin and is_space(text[last - 1]):
                last -= 1
            if last > begin:
                out.odd_offsets[odd] = first_offset + begin
                out.odd_begins[odd] = begin
                out.odd_ends[odd] = last
                odd += 1
        begin = end + 1
    out.counts[0] = rows
    out.counts[1] = urls
    out.counts[2] = odd


@lean_kernel
def scan_values(text: Bytes, begins: Ints, ends: Ints, offsets: Ints, words: Hashes, codes: Bytes, out: Scan) -> None:
    """Read every plain value into a row; list the others. Each is followed by a newline, or by the end of the text."""
    rows = np.int64(0)
    urls: Int = np.int64(0)
    odd = np.int64(0)
    out.url_starts[0] = 0
    for value in range(offsets.shape[0]):
        begin = begins[value]
        end = ends[value]
        last, used = _scan_event(text, begin, end, words, codes, out, rows, urls)
        if last >= 0 and past_space(text, last, end) == end and end - begin <= MOST_EVENT_BYTES:
            out.offset[rows] = offsets[value]
            urls = used
            rows += 1
            out.url_starts[rows] = urls
        else:
            out.odd_offsets[odd] = offsets[value]
            out.odd_begins[odd] = begin
            out.odd_ends[odd] = end
            odd += 1
    out.counts[0] = rows
    out.counts[1] = urls
    out.counts[2] = odd


@lean_kernel
def _iso_ms(text: Bytes, begin: Int, end: Int) -> Int:
    """Return the time of the form YYYY-MM-DD[Thh:mm:ss[.fff…][Z or ±hh:mm]]; -1 for all other forms."""
    if end - begin < 10 or byte_at(text, begin + 4) != 45 or byte_at(text, begin + 7) != 45:
        return np.int64(-1)
    year, month = digits(text, begin, begin + 4), digits(text, begin + 5, begin + 7)
    day = digits(text, begin + 8, begin + 10)
    if end - begin == 10:
        return _moment_ms(year, month, day, 0)
    if end - begin < 19 or (byte_at(text, begin + 10) != 84 and byte_at(text, begin + 10) != 32):
        return np.int64(-1)
    second_of_day = _second_of_day(text, begin + 11)
    at = begin + 19
    milliseconds = np.int64(0)
    if at < end and byte_at(text, at) == 46:
        at += 1
        scale = np.int64(100)
        first = at
        while at < end and 48 <= byte_at(text, at) <= 57:
            milliseconds += scale * (np.int64(byte_at(text, at)) - 48)
            scale //= 10
            at += 1
        if not 1 <= at - first <= 9:
            return np.int64(-1)
    east_minutes: Int = np.int64(0)
    if at < end and byte_at(text, at) == 90:
        at += 1
    elif end - at == 6 and byte_at(text, at + 3) == 58 and (byte_at(text, at) == 43 or byte_at(text, at) == 45):
        hours, minutes = digits(text, at + 1, at + 3), digits(text, at + 4, at + 6)
        if hours < 0 or minutes < 0:
            return np.int64(-1)
        east_minutes = hours * 60 + minutes
        if byte_at(text, at) == 45:
            east_minutes = -east_minutes
        at += 6
    if at != end:
        return np.int64(-1)
    midnight_or_later = _moment_ms(year, month, day, second_of_day)
    return midnight_or_later if midnight_or_later < 0 else midnight_or_later - east_minutes * 60000 + milliseconds


@lean_kernel
def _http_date_ms(text: Bytes, begin: Int, end: Int) -> Int:
    """Return the time of the form Thu, 01 Jan 2026 00:02:00 GMT; -1 for all other forms."""
    if end - begin != 29 or word_at(text, begin + 21) >> np.uint64(32) != _GMT or byte_at(text, begin + 3) != 44:
        return np.int64(-1)
    for at in (4, 7, 11, 16):
        if byte_at(text, begin + at) != 32:
            return np.int64(-1)
    for at in (0, 1, 2):
        if not 65 <= byte_at(text, begin + at) - 32 * (at > 0) <= 90:
            return np.int64(-1)
    month = np.int64(1)
    name = np.uint32(word_at(text, begin + 8)) & _THREE_BYTES
    while month <= 12 and _MONTH_NAMES[month - 1] != name:
        month += 1
    year, day = digits(text, begin + 12, begin + 16), digits(text, begin + 5, begin + 7)
    return _moment_ms(year, month, day, _second_of_day(text, begin + 17))


@inlined_kernel
def _second_of_day(text: Bytes, begin: Int) -> Int:
    """Return the second that hh:mm:ss is; -1 if it is none."""
    hour, minute = digits(text, begin, begin + 2), digits(text, begin + 3, begin + 5)
    second = digits(text, begin + 6, begin + 8)
    if byte_at(text, begin + 2) != 58 or byte_at(text, begin + 5) != 58:
        return np.int64(-1)
    if not 0 <= hour <= 23 or not 0 <= minute <= 59 or not 0 <= second <= 59:
        return np.int64(-1)
    return (hour * 60 + minute) * 60 + second


@inlined_kernel
def _moment_ms(year: Int, month: Int, day: Int, second_of_day: Int) -> Int:
    """Return the milliseconds since 1970; -1 for a date or a second that is none."""
    if year < 1970 or not 1 <= month <= 12 or not 1 <= day <= _month_days(year, month) or second_of_day < 0:
        return np.int64(-1)
    # Years begin in March, so that leap days come last.
    shifted = year - (1 if month <= 2 else 0)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    return (days * 86400 + second_of_day) * 1000


@inlined_kernel
def _month_days(year: Int, month: Int) -> Int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


@lean_kernel
def _scan_event(
    text: Bytes, begin: Int, end: Int, words: Hashes, codes: Bytes, out: Scan, row: Int, first_url: Int
) -> tuple[Int, Int]:
    """Read the object that begins here into a row. Returns where it ends (or -1), and where its URLs do."""
    failed = (np.int64(-1), first_url)
    out.announce[row] = 0
    out.time_ms[row] = 0
    out.modified_ms[row] = 0
    out.status[row] = 0
    out.digest[row] = np.uint64(0)
    out.media[row] = UNKNOWN_MEDIA
    out.links_known[row] = 0
    out.hops[row] = 0
    out.retry_seconds[row] = 0
    out.quality[row] = 0
    for slot in range(2):
        out.begins[first_url + slot] = -1
        out.ends[first_url + slot] = -1
        out.weights[first_url + slot] = 0
        out.nofollow[first_url + slot] = 0
    next_url = first_url + FIRST_HOP
    seen = np.int64(0)
    at = past_space(text, begin, end)
    if byte_or_0(text, at, end) != 123:
        return failed
    at = past_space(text, at + 1, end)
    while True:
        if byte_or_0(text, at, end) != 34:
            return failed
        key = at + 1
        at = end_of_string(text, key, end)
        if at < 0:
            return failed
        code = code_of(text, key, at, OF_EVENTS, words, codes)
        if code > 0:
            if code == MARK or (seen >> code) & 1:
                return failed
            seen |= np.int64(1) << code
        at = past_space(text, at + 1, end)
        if byte_or_0(text, at, end) != 58:
            return failed
        at = past_space(text, at + 1, end)
        value = at
        quoted = byte_or_0(text, at, end) == 34
        if code == LINKS and byte_or_0(text, at, end) == 91:
            at, next_url = _scan_links(text, at, end, words, codes, out, next_url, True)
            if at < 0:
                return failed
            out.links_known[row] = 1
        elif code == REDIRECTS and byte_or_0(text, at, end) == 91:
            hops = next_url
            at, next_url = _scan_links(text, at, end, words, codes, out, next_url, False)
            if at < 0 or next_url - hops > MOST_REDIRECTS:
                return failed
            for i in range(hops, next_url):
                out.weights[i] = 0
            _put_first(out, first_url + FIRST_HOP, hops, next_url)
            out.hops[row] = next_url - hops
        else:
            if quoted:
                is_url = code in (URL, CANONICAL)
                escapes = ANY_ESCAPES if code == 0 or code == TYPE else MARKS_ONLY if is_url else NO_ESCAPES
                at = past_string(text, at + 1, end, escapes)
            elif code == 0:
                at = past_anything(text, at, end)
            else:
                at = past_value(text, at, end)
            if at < 0:
                return failed
            if code > 0 and not is_word(text, value, end, NULL):
                if quoted:
                    if not _take_string(text, value + 1, at - 1, code, words, codes, out, row, first_url):
                        return failed
                elif not _take_number(text, value, at, code, out, row):
                    return failed
        at = past_space(text, at, end)
        if byte_or_0(text, at, end) == 44:
            at = past_space(text, at + 1, end)
        elif byte_or_0(text, at, end) == 125:
            break
        else:
            return failed
    if out.begins[first_url] < 0:
        return failed
    if out.announce[row]:
        out.links_known[row] = 0
        if next_url > first_url + FIRST_HOP:
            return failed
    return at + 1, next_url


@inlined_kernel
def _put_time(time_ms: Int, code: Int, out: Scan, row: Int) -> bool:
    """Store the time of a field; False if it is out of bounds."""
    if not EARLIEST_MS <= time_ms < LATEST_MS:
        return False
    if code == TIME:
        out.time_ms[row] = time_ms
    else:
        out.modified_ms[row] = time_ms
    return True


@inlined_kernel
def _take_string(
    text: Bytes, begin: Int, end: Int, code: Int, words: Hashes, codes: Bytes, out: Scan, row: Int, first_url: Int
) -> bool:
    """Store the string of a field; False if the library has to read it."""
    if code in (URL, CANONICAL):
        if end <= begin:
            return False
        slot = first_url if code == URL else first_url + 1
        out.begins[slot] = begin
        out.ends[slot] = end
        return True
    if code in (TIME, MODIFIED):
        if code == MODIFIED and not _has_digit(text, begin, end):
            return True  # such as "never": no time, which is as good as none
        time_ms = _http_date_ms(text, begin, end)
        return _put_time(time_ms if time_ms >= 0 else _iso_ms(text, begin, end), code, out, row)
    if code == KIND:
        kind = code_of(text, begin, end, OF_KINDS, words, codes)
        out.announce[row] = kind == ANNOUNCES
        return kind != 0
    if code == DIGEST:
        if end <= begin:
            return False
        out.digest[row] = hash_bytes(text, begin, end)
        return True
    if code == FAILURE:
        status = failure_status(text, begin, end)
        if status > 0 or out.status[row] < 0:
            return False
        out.status[row] = status
        return True
    if code == TYPE:
        for at in range(begin, end):
            c = byte_at(text, at)
            if c == 92 or c >= FIRST_MARK:  # an escape within the name
                return False
            if c == 59:  # ;
                break
        out.media[row] = media_of(text, begin, end)
        return True
    return code == RETRY and (begin == end or _take_number(text, begin, end, code, out, row))


@inlined_kernel
def _has_digit(text: Bytes, begin: Int, end: Int) -> bool:
    at = begin
    while at < end and not 48 <= byte_at(text, at) <= 57:
        at += 1
    return bool(at < end)


@inlined_kernel
def _epoch_ms(text: Bytes, begin: Int, end: Int) -> Int:
    """Return the time of an epoch, in seconds or milliseconds, with or without fraction; -1 if rounding may matter."""
    point = begin
    while point < end and byte_at(text, point) != 46:
        point += 1
    number = digits(text, begin, point)
    if number < 0 or point == end:
        return number if number >= LEAST_MILLISECONDS or number < 0 else number * 1000
    after = point + 1 if number >= LEAST_MILLISECONDS else min(point + 4, end)
    nines = 0
    while after + nines < end and nines < 3 and byte_at(text, after + nines) == 57:
        nines += 1
    if nines == 3 or end - point > 10:
        return np.int64(-1)
    if number >= LEAST_MILLISECONDS:
        return number
    milliseconds = np.int64(0)
    for digit in range(3):
        milliseconds *= 10
        if point + 1 + digit < end:
            milliseconds += np.int64(byte_at(text, point + 1 + digit)) - 48
    return number * 1000 + milliseconds


@inlined_kernel
def _take_number(text: Bytes, begin: Int, end: Int, code: Int, out: Scan, row: Int) -> bool:
    """Store the number of a field; False if the library has to read it."""
    if code == STATUS:
        number = digits(text, begin, end)
        if number < 0:
            return False
        if out.status[row] == 0:  # a failure takes precedence
            out.status[row] = number
        return bool(100 <= number < 1000)
    if code in (TIME, MODIFIED):
        return _put_time(_epoch_ms(text, begin, end), code, out, row)
    if code == RETRY:
        number = digits(text, begin, end)
        out.retry_seconds[row] = min(number, LONGEST_RETRY_SECONDS)
        return bool(number >= 0)
    if code == QUALITY:
        step = _quality_step(text, begin, end)
        out.quality[row] = step
        return bool(step > 0)
    return False


_MOST_DECIMALS = 15
_UNSURE = 1e-9


@inlined_kernel
def _quality_step(text: Bytes, begin: Int, end: Int) -> Int:
    """The step of a quality: 0 or 1, with or without decimals; 0 for other numbers, and where rounding may matter."""
    point = begin
    while point < end and byte_at(text, point) != 46:
        point += 1
    number, scale = digits(text, begin, point), np.int64(1)
    if number < 0 or number > 1 or point + 1 == end:
        return np.int64(0)
    for at in range(point + 1, end):
        c = byte_at(text, at)
        if not 48 <= c <= 57:
            return np.int64(0)
        if at - point <= _MOST_DECIMALS:
            number = number * 10 + np.int64(c) - 48
            scale *= 10
    quality = np.float64(number) / np.float64(scale)
    steps = quality * np.float64(BEST_QUALITY - 1) + 0.5
    if quality > 1.0 or (end - point > _MOST_DECIMALS + 1 and abs(steps - np.rint(steps)) < _UNSURE):
        return np.int64(0)
    return step_of_number(quality)


@lean_kernel
def _scan_links(
    text: Bytes, at: Int, end: Int, words: Hashes, codes: Bytes, out: Scan, next_url: Int, may_be_objects: bool
) -> tuple[Int, Int]:
    """Read a list of links, strings or objects, into the next URLs. Returns where it ends (or -1), and the next URL."""
    failed = (np.int64(-1), next_url)
    first = next_url
    at = past_space(text, at + 1, end)
    if byte_or_0(text, at, end) == 93:
        return at + 1, next_url
    while True:
        out.weights[next_url] = ORDINARY_WEIGHT
        out.nofollow[next_url] = 0
        if byte_or_0(text, at, end) == 34:
            out.begins[next_url] = at + 1
            at = past_string(text, at + 1, end, MARKS_ONLY)
            if at < 0:
                return failed
            out.ends[next_url] = at - 1
        elif may_be_objects and byte_or_0(text, at, end) == 123:
            at = _scan_link(text, at, end, words, codes, out, next_url)
            if at < 0:
                return failed
        elif may_be_objects and is_word(text, at, end, NULL):
            _break_link(out, next_url)
            at += 4
        else:
            return failed
        next_url += 1
        if next_url - first > MOST_LINKS:
            return failed
        at = past_space(text, at, end)
        if byte_or_0(text, at, end) == 93:
            return at + 1, next_url
        if byte_or_0(text, at, end) != 44:
            return failed
        at = past_space(text, at + 1, end)


@inlined_kernel
def _break_link(out: Scan, url: Int) -> None:
    """Store a link without a URL, which has neither weight nor words of its own."""
    out.begins[url] = out.ends[url] = -1
    out.weights[url] = ORDINARY_WEIGHT
    out.nofollow[url] = 0


@lean_kernel
def _put_first(out: Scan, first: Int, middle: Int, end: Int) -> None:
    """Move the URLs from `middle` on before those from `first` on."""
    if first < middle < end:
        _reverse(out, first, middle)
        _reverse(out, middle, end)
        _reverse(out, first, end)


@inlined_kernel
def _reverse(out: Scan, first: Int, end: Int) -> None:
    """Reverse the order of these URLs."""
    last = end - 1
    while first < last:
        out.begins[first], out.begins[last] = out.begins[last], out.begins[first]
        out.ends[first], out.ends[last] = out.ends[last], out.ends[first]
        out.weights[first], out.weights[last] = out.weights[last], out.weights[first]
        out.nofollow[first], out.nofollow[last] = out.nofollow[last], out.nofollow[first]
        first += 1
        last -= 1


@lean_kernel
def _scan_link(text: Bytes, at: Int, end: Int, words: Hashes, codes: Bytes, out: Scan, url: Int) -> Int:
    """Read a link that is an object. Returns where it ends, or -1."""
    seen = np.int64(0)
    at = past_space(text, at + 1, end)
    while True:
        if byte_or_0(text, at, end) != 34:
            return -1
        key = at + 1
        at = end_of_string(text, key, end)
        if at < 0:
            return -1
        code = code_of(text, key, at, OF_LINKS, words, codes)
        if code > 0:
            if (seen >> code) & 1:
                return -1
            seen |= np.int64(1) << code
        at = past_space(text, at + 1, end)
        if byte_or_0(text, at, end) != 58:
            return -1
        at = past_space(text, at + 1, end)
        value = at
        if byte_or_0(text, at, end) == 34:
            escapes = ANY_ESCAPES if code == 0 else MARKS_ONLY if code == LINK_URL else NO_ESCAPES
            at = past_string(text, at + 1, end, escapes)
        elif code == LINK_REL and byte_or_0(text, at, end) == 91:
            at, is_nofollow = _scan_rel_words(text, at, end)
            out.nofollow[url] |= is_nofollow
        elif code == 0:
            at = past_anything(text, at, end)
        else:
            at = past_value(text, at, end)
        if at < 0:
            return -1
        if code == LINK_URL:
            if byte_at(text, value) != 34:
                return -1
            out.begins[url] = value + 1
            out.ends[url] = at - 1
        elif code == LINK_REL and byte_at(text, value) == 34:
            out.nofollow[url] |= says_nofollow(text, value + 1, at - 1)
        elif code == LINK_NOFOLLOW:
            out.nofollow[url] |= is_word(text, value, end, TRUE)
        elif code == LINK_WEIGHT and not is_word(text, value, end, NULL):
            weight = _weight(text, value, at)
            if weight < 0:
                return -1
            out.weights[url] = weight
        at = past_space(text, at, end)
        if byte_or_0(text, at, end) == 125:
            if not (seen >> LINK_URL) & 1:
                _break_link(out, url)
            return at + 1
        if byte_or_0(text, at, end) != 44:
            return -1
        at = past_space(text, at + 1, end)


@lean_kernel
def _scan_rel_words(text: Bytes, at: Int, end: Int) -> tuple[Int, bool]:
    """Read a list of strings. Returns where it ends (or -1), and whether one is nofollow, ugc or sponsored."""
    is_nofollow = False
    at = past_space(text, at + 1, end)
    if byte_or_0(text, at, end) == 93:
        return at + 1, is_nofollow
    while byte_or_0(text, at, end) == 34:
        word = at + 1
        at = past_string(text, word, end, NO_ESCAPES)
        if at < 0:
            break
        is_nofollow |= says_nofollow(text, word, at - 1)
        at = past_space(text, at, end)
        if byte_or_0(text, at, end) == 93:
            return at + 1, is_nofollow
        if byte_or_0(text, at, end) != 44:
            break
        at = past_space(text, at + 1, end)
    return np.int64(-1), is_nofollow


@inlined_kernel
def _weight(text: Bytes, begin: Int, end: Int) -> Int:
    """A weight of at most two digits, and three after the point, in 1/1024; -1 for others."""
    point = begin
    while point < end and byte_at(text, point) != 46:
        point += 1
    whole = digits(text, begin, point)
    if whole < 0 or whole > 63:
        return np.int64(-1)
    if point == end:
        return whole * ORDINARY_WEIGHT
    decimals = end - point - 1
    fraction = digits(text, point + 1, end)
    if fraction < 0 or decimals > 3:
        return np.int64(-1)
    scale = 10 if decimals == 1 else 100 if decimals == 2 else 1000
    return np.int64(np.rint(np.float64(whole * scale + fraction) / np.float64(scale) * ORDINARY_WEIGHT))
