"""Makes grades.csv: the grades that eight people, who do not exist, gave to a hundred pages of crawl.jsonl.gz.

Every page has a true grade, from 1 to 4: pages with more links to them tend to have a higher one. A grader gives it
with a known probability, the skill, and otherwise the next lower or higher grade. `opicflow compare --grades` has to
find the skill of each.

    .venv/bin/python examples/make_grades.py [FILE]

The same bytes every time.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections import Counter
from pathlib import Path
from random import Random

LOG, GRADES = (Path(__file__).with_name(name) for name in ("crawl.jsonl.gz", "grades.csv"))
SEED, PAGES = 2003, 99
SKILLS = {
    "Ana": 0.90,
    "Ben": 0.85,
    "Cleo": 0.80,
    "Dan": 0.75,
    "Eva": 0.70,
    "Finn": 0.65,
    "Gita": 0.60,
    "Hugo": 0.55,
}
SHARES = {4: 0.1, 3: 0.25, 2: 0.3, 1: 0.35}
"""How many of the pages have each grade."""
NOISE = 1.5
"""How far a true grade is from the order by the logarithm of links: the larger, the less it depends on links."""
UNKNOWN = "https://elsewhere.example/not-in-the-crawl"


def true_grades(chance: Random) -> dict[str, int]:
    """Return the true grade of some pages that the log has links to, and of one that it has not."""
    links: Counter[str] = Counter()
    for line in gzip.decompress(LOG.read_bytes()).splitlines():
        try:
            event = json.loads(line)
            links.update(set(event["links"]) if event["status"] == 200 else ())
        except (ValueError, TypeError, KeyError):
            continue  # the lines that are no events
    pages = chance.sample(sorted(url for url in links if url.startswith("https://") and "?" not in url), PAGES)
    pages.sort(key=lambda url: -math.log(links[url]) - chance.gauss(0.0, NOISE))
    grades = [grade for grade, share in SHARES.items() for _ in range(round(share * (PAGES + 1)))]
    return dict(zip([*pages, UNKNOWN], grades, strict=True))


def given(grade: int, skill: float, chance: Random) -> int:
    """Return the grade that a person of this skill gives to a page with this true grade."""
    if chance.random() < skill:
        return grade
    return {1: 2, 4: 3}.get(grade) or grade + chance.choice((-1, 1))


def main() -> None:
    """Write the grades."""
    chance = Random(SEED)
    lines = ["url,grade,grader"]
    for url, grade in sorted(true_grades(chance).items()):
        lines += [f"{url},{given(grade, skill, chance)},{who}" for who, skill in SKILLS.items()]
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else GRADES
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
