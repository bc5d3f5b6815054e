"""Makes the papers' experiments again and writes docs/experiments.md, and what docs/communities.md has of them.

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

DOCS = Path(__file__).resolve().parent.parent / "docs"

READING = """\
# Experiments

`make experiments` runs these experiments and writes this page: all figures below were measured by it, and the same
command measures the same ones again. Those of communities are told in [communities.md](communities.md). A statement
*holds* by the rules in [reading.py](../pipelines/experiments/reading.py), and not by what one would like. What
columns of the data mean is said in [convergence.py](../pipelines/experiments/convergence.py),
[windows.py](../pipelines/experiments/windows.py) and [beyond.py](../pipelines/experiments/beyond.py). To try it on
smaller webs:

    opicflow experiment fig2 --out build/experiments --pages 10000 --runs 1

"""

# Words about the figures at 100,000 pages: read them again, and correct them, whenever the figures change.
DISCUSSION = """\
## What of it holds, and what does not

**Confirmed.** Random is far slower than the other orders. Off-line iterations win in the long run, OPIC after the
first round. Other measures of the error, that of ordering among them, rank the orders alike, and a Poisson
web does so too. |L'X - X| stays below 1/G, under Greedy by a factor of ten once all pages were read. Xyleme's order
is as good as Greedy. Newcomers' history nearly halves the error of pages not read yet. Small windows are enough, and
react faster than large ones.

**Cycle and Greedy are not about equal here.** On the power-law web Greedy's error after 10N is a quarter of Cycle's;
on the Poisson web, where no page is far more important than others, they are nearly equal, as the paper says. Greedy
is taken at its word here: after every visit the page with the most cash is next, so half of all visits go to the most
important hundredth of the pages, and the mean cash at a visit is above 2/N, which Cycle has. And a ledger takes a
page that the round has passed and nobody has read for one without links. So Greedy's error rises between N and 2N,
when nearly half of the pages are unread: against the web as it was seen until then it is far smaller. It falls as
they are read.

**The windows of figures 4 to 6 come out otherwise under Greedy, and as in the paper under Cycle.** Under Cycle the
default interpolation is the best or close to it at every change rate, Improved Fixed is three times better than Fixed
on a still web, and pages keep 8, 8.9 and 4.9 measures where the paper counts 8, 8.4 and 6.1. Under Greedy half of the
pages are read twice at most in ten rounds. Where the gap between two visits is longer than the window, the paper's
interpolation trusts that gap alone, and is noisy; Variable (8) still uses all there is. That the paper counts 8.4
measures in 8 months says that its pages were read about once a month each, far more evenly than by this Greedy on
this web. On the important tenth interpolation beats the window of 16 under Greedy too, where little changes.

**What that says of the default.** Under exact Greedy on a still web it errs by 9 % over all pages, where Variable (8)
errs by 2 % with eight measures a page instead of one. On the important tenth it is the better one while at most one
per cent of the pages changes, and under Cycle in any case. Who crawls greedily and wants unimportant pages right takes
`--history variable`.

**Different policies by importance** were tried as one pair: Fixed for the important tenth, Variable (16) for the
others. On the tenth it is better than Variable (16) where nothing changes, and worse where much does.

**The frequency of visits** under Greedy tells the importance of the important pages to about 2 %, of all to about 12 %.

**Discovery.** On the web with hosts Greedy is ahead of breadth first in the first fifth of the crawl, and both are far
ahead of Random all the way. Later breadth first, which reads nothing twice, is ahead: Greedy spends visits on coming
back. On the power-law web, where links go anywhere, both read as much early on: a page that many link to is found
soon by any order that follows links.

**The published trend** has the right sign for nine of ten pages that moved, from the fourth day on, and ranks them
well. It never shows more than a tenth of the move a day: it is smoothed over three days here, over seven unless told
otherwise. **The error factor** bounds the whole vector. For a single page it is no error bar: it is not larger where
errors are, and under Greedy up to a quarter of the pages are off by more than theirs (half of them on day 5).
"""


# Words about the figures at 300,000 pages, seeds 1 to 5: read them again, and correct them, whenever those change.
OF_COMMUNITIES = """\
## The paper's experiments, made again

`python -m benchmarks.experiments --only communities` runs `opicflow experiment table1 table2 influence community` and
writes the rest of this page, as `make experiments` does. A statement *holds* by the rules in
[reading_communities.py](../pipelines/experiments/reading_communities.py). What the columns of the data mean is said
in [community.py](../pipelines/experiments/community.py). On a web of your own, whose names are URLs:

    opicflow experiment table1 table2 influence community --edges links.tsv.gz --out build/mine

**The webs.** The paper's crawls of 2005 are not to be had. A [made-up web](../pipelines/experiments/domains.py) of
300,000 pages stands for them: 5 links a page (the crawls had 4.9 and 3.9), 8 of 10 of them within the host, 9 of 10
of the others within one of 50 topics, and 3 of 10 pages without links. Sites are hosts that have the shares of the
web that the paper's have. Around a topic the web is a crawl six links deep from the front pages of its hosts; the
paper's was four links deep, but here a link leads to fewer new pages. A *topic* is what lies within two links of all
these front pages, a *subtopic* what lies within three links of ten. Without topics the links to a host come from
anywhere, and no reading nearby finds their sources: L1 falls from 0.21 to 0.17 at the best.

So made, sites begin at an L1 of 0.16 to 0.21 and end at 0.04 to 0.10. The paper's begin at 0.05 to 0.30 and end at
0.04 in the mean. Subtopics are further off, 0.36 to 0.38 before and 0.25 after, where the paper's end at 0.04 to
0.06: three links from ten front pages lead here to some pages each of many hosts, and most of what links to those is
the rest of their hosts.

### What of it holds, and what does not

**Confirmed.** Reading a little helps much. 2n pages, 0.5 to 2.4 % of the web, take the L1 of sites to between 0.3 and
0.5 of what it was, and Kendall's tau from 0.67 to 0.84. All strategies that look at links are better early on than
Random, SC-Select and PF-Select the most. SC-Select ends better than PF-Select on every domain, so it is right to
count leaks; its table of a hundred norms is as good as exact ones. Before anything else was read, influence foretells
what a page brings to a site by a Pearson correlation of 0.86, outlink count by 0.27. A few influential pages make
most of that: in ranks it is 0.51 and 0.38.

**SC-Select is not the best in the end.** On sites it is ahead until some 0.7n pages were read. Then OutlinkCount
overtakes it, and the ledger's importance does: 0.068 and 0.071 after 2n pages, SC-Select 0.078. On the smallest site
they end alike, on subtopics SC-Select is 5 to 7 % ahead of OutlinkCount. Figure 1 half way shows why. By its true
links, which nobody knows before, a page's influence still tells what reading it brings (0.67 on the site); the
estimate tells nothing any more (0.00), and not even how far the page moves the ranks (0.11). For it expects every
page to link as pages of F do in the mean. What it finds influential then gets much of the rank of one page with
few other links within F, and such pages lead away: in the last round about half of what it takes is linked by one
page alone (of site 3, seeds 1 to 3; nothing of what OutlinkCount takes is), and 23 % is of the site's topic, of
PF-Select's 1 %, of OutlinkCount's 52 % (2n pages are more than the topics of the large sites have). Around topics it
is 74, 31 and 98 %. Pages that many link to are where links come back: OutlinkCount has found the sources of 60 % of
what flows into sites, SC-Select of 51 %, PF-Select of 31 %.
PF-Select hardly gets better after 10 rounds and ends behind Random.

**It depends on the web.** Where the neighbourhood is far larger than what is read, with topics of 24,000 pages or
none, SC-Select is as good as any early, and the best late. Where it can nearly be read, OutlinkCount wins, by more
the smaller topics are and the more pages have no links. What the neighbourhoods of the paper's domains were like is
not known.

**Ten times better** it gets nowhere here: 3.3 times at the best, 4.4 by OutlinkCount. In the paper one of eleven
domains gets there.

**Around subtopics** influence foretells little even at first: with some seeds much, with others the opposite (0.21 ±
0.75). About half of the candidates take the estimate further away from the true ranks. That ranks move is not that
they get better, when most of what is missing is out of reach. Not Random is the worst on topics, but PF-Select.

**Beyond the paper: the importance of a live ledger** selects about as well as OutlinkCount, on the large topic a
little better. Early on it is slower: the ledger has heard of each page once.

**So**: SC-Select for a budget below some 0.7n, or within a neighbourhood that is far larger than what can be read;
above that `linkers`, or the ledger's importance. `opicflow community try` tells which of them for a crawl that you
have.
"""

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def main() -> None:
    """Run the experiments, or go on with them, and write the pages."""
    parser = argparse.ArgumentParser(description="make the papers' experiments again, into docs")
    parser.add_argument("--out", type=Path, default=Path("build/experiments"), help="where what is measured is kept")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages go")
    parser.add_argument("--only", choices=["opic", "communities"], help="docs/experiments.md or docs/communities.md")
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
