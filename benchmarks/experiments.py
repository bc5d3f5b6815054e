"""Repeats the papers' experiments: writes experiments.md and the measured part of communities.md in docs/results.

Run it with `make experiments`, or `python -m benchmarks.experiments --only communities` for the minutes of the latter
alone. Everything has a seed: the same command writes the same figures.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from opicflow.pipelines.cli.main import main as opicflow
from opicflow.pipelines.experiments.catalogue import EXPERIMENTS
from opicflow.pipelines.experiments.communities.catalogue import COMMUNITIES

DOCS = Path(__file__).resolve().parent.parent / "docs" / "results"

READING = """\
# Experiments

The experiments of papers 000 and 002, repeated, and some of this project. `make experiments` runs them and writes this
page; running it again gives the same figures. It measures two seeds; this page has the first (`python -m
benchmarks.experiments --only opic -- --runs 1`). Rows that were measured are kept in build/experiments/parts: only what
has changed since is measured again. The experiments on communities are in [communities.md](communities.md). A
claim *holds* by the rules in [claims.py](../../pipelines/experiments/importance/claims.py). The columns of the data are
explained in [convergence.py](../../pipelines/experiments/importance/convergence.py),
[windows.py](../../pipelines/experiments/importance/windows.py) and
[extensions.py](../../pipelines/experiments/importance/extensions.py). To run an experiment on smaller webs:

    opicflow experiment fig2 --out build/experiments --pages 10000 --runs 1

`loop-refresh` crawls a made-up web for a year by the orders of the command line itself, a replay a day. Its bounds are
in [refresh/claims.py](../../pipelines/experiments/refresh/claims.py), its measures in
[freshness.py](../../pipelines/experiments/refresh/freshness.py), and what it is compared with in
[competitors.py](../../pipelines/experiments/refresh/competitors.py). It takes a minute a strategy and bandwidth:

    opicflow experiment loop-refresh --out build/loop --bandwidths 5

"""

# Text about the figures at 100,000 pages: check it whenever the figures change.
DISCUSSION = """\
## Results

**Confirmed.** Random is far slower than the other orders. Off-line iterations win in the long run, OPIC after the first
round. Other measures of the error, including disorder, rank the orders in the same way, and so does a Poisson web. |L'X
- X| stays below 1/G, under Greedy by a factor of ten once all pages were read. Xyleme's order is as good as Greedy.
Newcomers' history nearly halves the error of pages not read yet. Small windows are enough, and adapt faster than large
ones.

**Certified** is far nearer than any other history policy on every web that does not change or whose changes were
read: 0.03 % after 2N and 0.0004 % after 3N under Cycle, where the default has 40 and 19 %; 0.12 % one round after a
tenth of the links moved (17 %); less than a fifth of the default's error at every change rate. No certificate was
below the true distance; it was 4 to 80 times as large. It is exact for the graph *seen*: where 60 % of the pages are
never read its error is below 0.0001 % against the graph seen, and 196 % against the whole web, as for every policy.
On a web that grows it is hardly better than the default while it grows, because links that were not read yet are
missing, and 20 times better after it. Its bound under Greedy, 0.02 % after 3N, holds in batches (0.003 %), not under
exact Greedy (0.052 %): that reads the last unread pages just before 3N. Greedy that follows a certified ledger's own
waiting cash finds and reads unread pages sooner, but reads few pages again: on a page that was read, cash waits only
where importance has moved. To learn of changes, fetch again by a refresh strategy.

**Cycle and Greedy are not about equal here.** On the power-law web Greedy's error after 10N is a quarter of Cycle's; on
the Poisson web, where no page is far more important than others, they are nearly equal, as in the paper. This Greedy is
exact: after every visit the page with the most cash is next. So half of all visits go to the most important hundredth
of the pages, and the mean cash at a visit is above 2/N, the value of Cycle. A ledger treats a page that the round has
passed without a visit as a page without links. So Greedy's error rises between N and 2N, when nearly half of the pages
are unread, and falls as they are read. Against the web seen so far the error is far smaller.

**The windows of figures 4 to 6 differ from the paper under Greedy, and agree under Cycle.** Under Cycle the default
interpolation is the best or close to the best at every change rate, Improved Fixed is three times better than Fixed on
a web that does not change, and pages keep 8, 8.9 and 4.9 measures, in the paper 8, 8.4 and 6.1. Under Greedy half of
the pages are read at most twice in ten rounds. If the gap between two visits is longer than the window, the paper's
interpolation uses that gap alone, and is noisy; Variable (8) still uses all measures. The paper's 8.4 measures in 8
months mean that its pages were read about once a month each, far more evenly than by this Greedy on this web. On the
important tenth interpolation beats the window of 16 under Greedy too, if little changes.

**The default history policy.** Under exact Greedy on a web that does not change its error is 9 % over all pages, that
of Variable (8) 2 %, with eight measures a page instead of one. On the important tenth the default is better as long as
at most one per cent of the pages changes, and under Cycle always. For a greedy crawl that needs accurate importance of
unimportant pages, use `--history variable`.

**Different policies by importance** were tried as one pair: Fixed for the important tenth, Variable (16) for the
others. On the tenth it is better than Variable (16) if nothing changes, and worse if much does.

**The frequency of visits** under Greedy estimates importance to about 2 % for important pages, and 12 % for all.

**Discovery.** On the web with hosts Greedy is ahead of breadth first in the first fifth of the crawl, and both are far
ahead of Random throughout. Later breadth first, which reads no page twice, is ahead: Greedy spends visits on pages read
before. On the power-law web, where links lead to any page, both read equally much early on: any order that follows
links soon finds a page with many links to it.

**The published trend** has the right sign for nine of ten pages that moved, from the fourth day on, and ranks them
well. It never shows more than a tenth of the move a day: it is smoothed over three days here, by default over seven. Of
the highest trends 89 to 100 % are of pages that really rose under certified, 81 to 98 % under the default in cycle or
greedy order; in random order the default is near chance (49 to 59 %, where 35 to 42 % of all pages rose).
**The error factor** bounds the whole vector. It is no error bar of a single page: it is not larger where errors are,
and under Greedy the error of up to a quarter of the pages exceeds it (half of the pages on day 5).
"""


# Text about the figures at 300,000 pages, seeds 1 to 5: check it whenever the figures change.
OF_COMMUNITIES = """\
## The paper's experiments, repeated

`python -m benchmarks.experiments --only communities` runs `opicflow experiment table1 table2 influence community` and
writes the rest of this page, as `make experiments` does. A claim *holds* by the rules in
[claims.py](../../pipelines/experiments/communities/claims.py). The columns of the data are explained in
[accuracy.py](../../pipelines/experiments/communities/accuracy.py). For a web of your own, whose names are URLs:

    opicflow experiment table1 table2 influence community --edges links.tsv.gz --out build/mine

**The webs.** The paper's crawls of 2005 are not available. A [synthetic
web](../../pipelines/experiments/communities/domains.py) of 300,000 pages replaces them: 5 links a page (the crawls had
4.9 and 3.9), 8 of 10 links within the host, 9 of 10 of the others within one of 50 topics, and 3 of 10 pages without
links. Sites are hosts with the same shares of the web as the paper's. Around a topic the web is a crawl six links deep
from the front pages of its hosts; the paper's was four links deep, but here a link leads to fewer new pages. A *topic*
holds the pages within two links of all these front pages, a *subtopic* the pages within three links of ten. Without
topics the links to a host come from anywhere, and reading nearby does not find their sources: L1 falls from 0.21 to
0.17 at best.

On this web sites start at an L1 of 0.16 to 0.21 and end at 0.04 to 0.10. The paper's start at 0.05 to 0.30 and end at
0.04 in the mean. Subtopics have larger errors, 0.36 to 0.38 before and 0.25 after, while the paper's end at 0.04 to
0.06: three links from ten front pages lead here to a few pages of each of many hosts, and most links to those come from
the rest of their hosts.

### Results

**Confirmed.** Reading a little helps much. 2n pages, 0.5 to 2.4 % of the web, reduce the L1 of sites to 0.3 to 0.5 of
its start, and raise Kendall's tau from 0.67 to 0.84. All strategies that use links are better than Random early on,
SC-Select and PF-Select most. SC-Select ends better than PF-Select on every domain, so counting leaks is right; its
table of a hundred norms is as good as exact norms. Before other pages are read, influence predicts the gain of reading
a page for a site with a Pearson correlation of 0.86, outlink count with 0.27. A few influential pages cause most of
this: the rank correlations are 0.51 and 0.38.

**SC-Select is not the best in the end.** On sites it is ahead until about 0.7n pages were read. Then OutlinkCount and
the ledger's importance are better: 0.068 and 0.071 after 2n pages, SC-Select 0.078. On the smallest site they end
equal, on subtopics SC-Select is 5 to 7 % ahead of OutlinkCount. Figure 1 half way shows the reason. With its true
links, which are unknown before it is read, a page's influence still predicts the gain of reading it (0.67 on the site).
The estimate no longer does (0.00), and hardly predicts how far the page moves the ranks (0.11), because it expects
every page to link as the mean page of F. Pages of high estimated influence get much of the rank of one page with few
other links within F, and such pages lead away: in the last round about half of the pages it selects have a single
linker (site 3, seeds 1 to 3; none of OutlinkCount's), and 23 % have the site's topic, of PF-Select's 1 %, of
OutlinkCount's 52 % (2n pages are more than the topics of the large sites have). Around topics the shares are 74, 31 and
98 %. Pages with many linkers link back: OutlinkCount has found the sources of 60 % of the flow into sites, SC-Select of
51 %, PF-Select of 31 %. PF-Select hardly improves after 10 rounds and ends behind Random.

**The result depends on the web.** If the neighbourhood is far larger than the pages read, with topics of 24,000 pages
or none, SC-Select is as good as any other early, and the best late. If most of it can be read, OutlinkCount wins, the
more so the smaller topics are and the more pages have no links. The neighbourhoods of the paper's domains are unknown.

**A tenfold improvement** is not reached here: 3.3 times at best, 4.4 with OutlinkCount. In the paper one of eleven
domains reaches it.

**Around subtopics** influence predicts little even at first: with some seeds much, with others the opposite (0.21 ±
0.75). About half of the candidates take the estimate further away from the true ranks. A large move of the ranks is not
an improvement if most of the missing pages are out of reach. PF-Select, not Random, is the worst on topics.

**Beyond the paper: the importance of a live ledger** selects about as well as OutlinkCount, on the large topic a little
better. Early on it is slower, because the ledger has received each page only once.

**Recommendation**: SC-Select for a budget below about 0.7n, or in a neighbourhood far larger than the pages to read;
otherwise `linkers`, or the ledger's importance. `opicflow community try` finds the best one for a crawl that you have.
"""

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def main() -> None:
    """Run the experiments, or go on with them, and write the pages."""
    parser = argparse.ArgumentParser(description="make the papers' experiments again, into docs/results")
    parser.add_argument("--out", type=Path, default=Path("build/experiments"), help="folder for measured rows")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages go")
    parser.add_argument("--only", choices=["opic", "communities"], help="only one of the two pages")
    parser.add_argument("more", nargs="*", help="options for `opicflow experiment`")
    chosen = parser.parse_args()
    if chosen.only != "communities":
        measured = _measured([name for name in EXPERIMENTS if name not in _COMMUNITIES], chosen.out, chosen.more)
        page = READING + DISCUSSION + "\n" + _shown(measured, chosen.out, chosen.docs / "experiments") + "\n"
        (chosen.docs / "experiments.md").write_text(page, encoding="utf-8")
    if chosen.only != "opic":
        out = chosen.out / "communities"
        measured = OF_COMMUNITIES + "\n" + _measured(_COMMUNITIES, out, chosen.more)
        path = chosen.docs / "communities.md"
        before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        shown = _shown(measured, out, chosen.docs / "communities")
        path.write_text(f"{before}{BEGIN}\n\n{shown}\n\n{END}{after}", encoding="utf-8")


_COMMUNITIES = [one.name for one in COMMUNITIES]


def _measured(names: list[str], out: Path, more: list[str]) -> str:
    """Run these experiments, or go on with them: their report, without its heading."""
    code = opicflow(["experiment", *names, "--out", str(out), *more])
    if code:
        sys.exit(code)
    return (out / "report.md").read_text(encoding="utf-8").partition("\n\n")[2]


def _shown(report: str, out: Path, plots: Path) -> str:
    """A report as a page shows it, and its plots beside that."""
    plots.mkdir(exist_ok=True)
    for plot in sorted((out / "plots").glob("*.svg")):
        shutil.copyfile(plot, plots / plot.name)
    for name in sorted({path.name for path in (out / "data").iterdir()}):
        report = report.replace(f"Data: [{name}](data/{name}).\n", "")
    return report.replace("](plots/", f"]({plots.name}/").rstrip()


if __name__ == "__main__":
    main()
