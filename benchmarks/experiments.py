"""Makes the papers' experiments again and writes docs/experiments.md, with its plots and what is to be read in them.

Run it with `make experiments`. Everything has a seed: the same command writes the same figures.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from opicflow.pipelines.cli import main as opicflow

DOCS = Path(__file__).resolve().parent.parent / "docs"

READING = """\
# Experiments

`make experiments` runs `opicflow experiment all` and writes this page: all figures below were measured by it, and the
same command measures the same ones again. A statement *holds* by the rules in
[reading.py](../pipelines/experiments/reading.py), and not by what one would like. What columns of the data mean is said
in [convergence.py](../pipelines/experiments/convergence.py), [windows.py](../pipelines/experiments/windows.py) and
[beyond.py](../pipelines/experiments/beyond.py). To try it on smaller webs:

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


def main() -> None:
    """Run the experiments, or go on with them, and write the page."""
    parser = argparse.ArgumentParser(description="make the papers' experiments again, into docs/experiments.md")
    parser.add_argument("--out", type=Path, default=Path("build/experiments"), help="where what is measured is kept")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page goes")
    parser.add_argument("more", nargs="*", help="options for `opicflow experiment all`")
    chosen = parser.parse_args()
    code = opicflow(["experiment", "all", "--out", str(chosen.out), *chosen.more])
    if code:
        sys.exit(code)
    report = (chosen.out / "report.md").read_text(encoding="utf-8")
    _, _, measured = report.partition("\n\n")
    measured = measured.replace("](plots/", "](experiments/")
    for name in sorted({path.name for path in (chosen.out / "data").iterdir()}):
        measured = measured.replace(f"Data: [{name}](data/{name}).\n", "")
    (chosen.docs / "experiments.md").write_text(
        READING + DISCUSSION + "\n" + measured.rstrip() + "\n", encoding="utf-8"
    )
    plots = chosen.docs / "experiments"
    plots.mkdir(exist_ok=True)
    for plot in sorted((chosen.out / "plots").glob("*.svg")):
        shutil.copyfile(plot, plots / plot.name)


if __name__ == "__main__":
    main()
