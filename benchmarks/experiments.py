"""Repeats the experiments: experiments.md, discovery.md, manipulation.md, sites.md, worth.md, a part of communities.md.

They are in docs/results. Run it with `make experiments`, or `python -m benchmarks.experiments --only communities` for
the minutes of one page. Everything has a seed: the same command writes the same figures.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from opicflow.pipelines.cli.main import main as opicflow
from opicflow.pipelines.lab.experiments.catalogue import EXPERIMENTS
from opicflow.pipelines.lab.experiments.communities.catalogue import COMMUNITIES
from opicflow.pipelines.lab.experiments.discovery.catalogue import DISCOVERY
from opicflow.pipelines.lab.experiments.loop.catalogue import LOOP
from opicflow.pipelines.lab.experiments.manipulation.catalogue import MANIPULATION
from opicflow.pipelines.lab.experiments.sites.catalogue import SITES

DOCS = Path(__file__).resolve().parent.parent / "docs" / "results"

READING = """\
# Experiments

The experiments of papers 000 and 002, repeated, and some of this project. `make experiments` runs them and writes this
page; running it again gives the same figures. It measures two seeds; this page has the first (`python -m
benchmarks.experiments --only opic -- --runs 1`). Rows that were measured are kept in build/experiments/parts: only what
has changed since is measured again. Which unread page a crawl should read first is in [discovery.md](discovery.md), the
experiments on communities are in [communities.md](communities.md). A
claim *holds* by the rules in [claims.py](../../pipelines/lab/experiments/importance/claims.py). The columns of the data
are explained in [convergence.py](../../pipelines/lab/experiments/importance/convergence.py),
[windows.py](../../pipelines/lab/experiments/importance/windows.py) and
[extensions.py](../../pipelines/lab/experiments/importance/extensions.py). To run an experiment on smaller webs:

    opicflow experiment fig2 --out build/experiments --pages 10000 --runs 1

`loop-refresh` crawls a made-up web for a year by the orders of the command line itself, a replay a day. Its bounds are
in [refresh/claims.py](../../pipelines/lab/experiments/refresh/claims.py), its measures in
[freshness.py](../../pipelines/lab/experiments/refresh/freshness.py), and its competitors in
[competitors.py](../../pipelines/lab/experiments/refresh/competitors.py). It takes a minute a strategy and bandwidth:

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
important tenth interpolation is better than the window of 16 under Greedy too, if little changes.

**The default history policy.** Under exact Greedy on a web that does not change its error is 9 % over all pages, that
of Variable (8) 2 %, with eight measures a page instead of one. On the important tenth the default is better as long as
at most one per cent of the pages changes, and under Cycle always. For a greedy crawl that needs accurate importance of
unimportant pages, use `--history variable`.

**Different policies by importance** were tried as one pair: Fixed for the important tenth, Variable (16) for the
others. On the tenth it is better than Variable (16) if nothing changes, and worse if much does.

**The frequency of visits** under Greedy estimates importance to about 2 % for important pages, and 12 % for all.

**In the closed loop** `freshness` and `harmonic` are two to three points behind the oracle at 5 % a day, and `thesis`
six, not within one point: they have to learn change rates ([refresh-strategies.md](refresh-strategies.md)). All three
are ahead of round robin and of Nutch's schedule at every bandwidth. Only `greedy` leaves pages for much longer than the
longest interval, up to 335 days.

**The trend of certified**, importance against its mean over a window of three days (by default seven), has the right
sign for up to 99 % of the pages that moved in cycle order, and 63 % in greedy order. Of the highest trends 90 to 98 %
are of pages that really rose on a changing web, and 56 to 74 % on a growing one, where 37 and 13 % of all pages rose:
there the shares of all pages fall. While a crawl begins, trends show how it reads the web. The figures of *stated* and
*trends* are of webs of 10,000 pages; all others are of 100,000.
**The error factor** bounds the whole vector. It is no error bar of a single page: it is not larger where errors are,
and under Greedy the error of up to a quarter of the pages exceeds it (half of the pages on day 5).
"""


# Text about the figures at 300,000 pages, seeds 1 to 5: check it whenever the figures change.
OF_COMMUNITIES = """\
## The paper's experiments, repeated

`python -m benchmarks.experiments --only communities` runs `opicflow experiment table1 table2 influence community` and
writes the rest of this page, as `make experiments` does. A claim *holds* by the rules in
[claims.py](../../pipelines/lab/experiments/communities/claims.py). The columns of the data are explained in
[accuracy.py](../../pipelines/lab/experiments/communities/accuracy.py). For a web of your own, whose names are URLs:

    opicflow experiment table1 table2 influence community --edges links.tsv.gz --out build/mine

**The webs.** The paper's crawls of 2005 are not available. A [synthetic
web](../../pipelines/lab/experiments/communities/domains.py) of 300,000 pages replaces them: 5 links a page (the crawls
had 4.9 and 3.9), 8 of 10 links within the host, 9 of 10 of the others within one of 50 topics, and 3 of 10 pages
without links. Sites are hosts with the same shares of the web as the paper's. Around a topic the web is a crawl six
links deep from the front pages of its hosts; the paper's was four links deep, but here a link leads to fewer new pages.
A *topic* holds the pages within two links of all these front pages, a *subtopic* the pages within three links of ten.
Without topics the links to a host come from anywhere, and reading nearby does not find their sources: L1 falls from
0.21 to 0.17 at best.

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
or none, SC-Select is as good as any other early, and the best late. If most of the neighbourhood can be read,
OutlinkCount wins; it wins more clearly if topics are smaller, and if more pages have no links. The neighbourhoods of
the paper's domains are unknown.

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

# Text about the figures at 10,000 pages, seeds 1 to 3: check it whenever the figures change.
OF_SITES = """\
# Which rank of sites

Importance is computed for pages. What is the importance of a site, a host or a registrable domain? There are three
answers, and they differ. `python -m benchmarks.experiments --only sites` measures them and writes the rest. The columns
of the data are explained in [site_measures.py](../../pipelines/lab/experiments/sites/site_measures.py).

| | the sum of its pages | the graph of sites | a ledger of sites |
|---|---|---|---|
| meaning | how often one who follows links is there | how other sites link to it | the same, during the crawl |
| command | `top --by domain`, `site-importance` of `replay` and `stream` | `rank --by domain` | none |
| links within the site | count | do not count, unless `--internal` is given | do not count |
| pages of its own | raise it | do not raise it | do not raise it |
| it is exact | as the importance of pages is | always, for all links given | when every page was read twice |

**Use the sum** to share out what a crawler has: fetches, storage, attention. **Use the graph of sites** to compare
sites, in a list for people: a site does not raise its rank by pages of its own. With a state that remembers links it
needs no log: `opicflow graph build --state DIR`.

**Why no command has a ledger of sites.** The paper was working on one (002, section 4.3): a visit of a page is a visit
of its site, whose links are those of all its pages as last seen. Under `certified` it ends with the ranks of the graph
of sites, as the last table shows, and costs more: a visit reads the links of a whole site instead of one page, and the
links of every page must be remembered twice. The same ranks come from the links that a ledger of pages remembers
anyway: folding a million pages with ten million links takes a second.
"""

OF_DISCOVERY = """\
# Which unread page first

A crawler finds pages faster than it reads them. Which one it should read next is what importance is bought for. This
page compares the orders that the literature has, and one that learns, on made-up webs. `python -m
benchmarks.experiments --only discovery` measures it again, in two minutes, and writes the rest of the page; `opicflow
experiment discovery --out build/discovery` is the experiment alone. A claim *holds* by the rules in
[claims.py](../../pipelines/lab/experiments/discovery/claims.py); the columns of the data are explained in
[crawls.py](../../pipelines/lab/experiments/discovery/crawls.py).

## The rule

An unread page has some importance already: the cash that the pages read so far pay it. That is a fair estimate of its
final importance, but it rests on the pages read so far. By this estimate the best page of a site that was never read is
worth little, and so the site is not read. The rule does three things about that.

- **Siblings.** Pages that are neighbours in the order of URLs, on the same host, tend to be alike. The worth of a page
  is its importance (its logarithm), moved towards the mean of its five neighbours on either side. How far is learnt:
  four cycles after a page was ordered, the rule checks how much its importance has risen, and whether the importance of
  its siblings had predicted it.
- **Exploring.** A share of the orders goes to pages of hosts of which few pages were read: their worth, plus 2 where
  nothing else of the host was read, plus 1 where half was. How large the share is, is learnt: four cycles later the
  pages that were explored and the other pages are compared by their gain. The gain of a page is its importance above
  the minimum that any page has, the same for the pages first found through it, and a little for every page found, for
  ten at most. If exploring brought more, its share rises, else it falls, between 5 and 70 %.
- **Limits**, because a manipulator makes sites of which little was read at no cost. One registrable domain has at most
  a tenth of the orders that explore, and a fifth of the others while others have pages left. And a domain may be
  explored five times for each of its pages that *another domain which vouches* leads to, and twice for each of its
  pages that was read by worth. A domain vouches once eight of its pages were read by worth. So exploring goes one step
  beyond what worth has confirmed: a farm of a thousand domains is as much as the one that somebody else links to.

Replays and streams order unread pages by this rule (`--discovery-by learnt`, the default);
[a decision](../decisions/discovery.md) has when a ledger learns.

The [package](../../pipelines/discovery) is a function of columns; its constants are in
[rule.py](../../pipelines/discovery/rule.py). On a million known pages a cycle's orders take a tenth of a second.

## The webs

[Webs of directories](../../pipelines/lab/web/directories.py) have sites of very unequal size, directories whose pages
link to each other by a template (front page, menu, index above, lists that go on page by page, the next pages),
directories within directories, pages that many sites quote, and sites that one link leads to. *Archive* has some 170
sites of small directories; *portal* has 25 sites, most behind one weak link, whose menus hold most of the importance;
*shop* has lists of ten pages a page and long menus; *homes* a thousand sites of a few pages. *Hosted* has hosts, but no
directories. Two webs have traps: a calendar and a tree of sessions that lead to ever new URLs of their own, half as
many pages as the web has, and a link farm of a fifth as many, on 20 domains. 40 links on random pages lead to them.

Two real webs, which are not in this repository, were crawled in the same way. Archive was made to be like the first and
portal like the second: share of all importance after 10/20/40 % of the pages,

| order | first real web | archive | second real web | portal |
|---|---|---|---|---|
| recomputed | 25.3 / 40.5 / 62.5 | 27.6 / 39.6 / 59.0 | 48.9 / 54.8 / 61.4 | 52.4 / 59.4 / 69.7 |
| RankMass | 19.8 / 31.5 / 55.7 | 27.2 / 40.7 / 59.6 | 50.0 / 58.0 / 67.3 | 54.5 / 61.0 / 72.5 |
| siblings | 25.3 / 43.5 / 66.2 | 27.2 / 40.2 / 59.6 | 50.2 / 55.4 / 61.6 | 55.7 / 62.4 / 77.0 |
| learnt at first | 24.9 / 43.3 / 67.9 | 28.1 / 41.9 / 60.1 | 50.7 / 65.3 / 78.0 | 55.8 / 65.3 / 78.9 |
| greedy by truth | 39.8 / 50.9 / 69.6 | 38.6 / 51.4 / 69.4 | 72.4 / 79.6 / 87.0 | 64.1 / 76.1 / 84.8 |

They differ in one thing: on the first real web siblings helped and exploring did not, on archive it is the reverse.
No parameters were found by which siblings help as much as there.

## What gained, and what did not

The rule that was tried first on the real webs is *learnt at first* below: neighbours of any host, weight 0.3, little
read among the fifty nearest URLs, no limits. Points ahead of recomputed importance after 20/40 % of the pages; seeds 1
to 3, or 21 to 23 for those marked *; and the share of hostile pages after 20/40 % on *archive with traps*, where
recomputed importance reads 0.4/21. Rows were compared one change at a time with the rule as it was when they were
tried, so compare differences within a group only.

| change | archive | portal | shop | hosted | hostile |
|---|---|---|---|---|---|
| the first rule | +2.4 / +2.0 | +7.1 / +13.2 | +4.3 / +4.8 | 0.0 / +0.6 | 22 / 46 |
| and only the same host | +5.1 / +7.9 | +8.7 / +10.6 | +12.4 / +13.4 | +1.0 / +2.2 | |
| and a tenth of exploring a domain | +5.8 / +8.5 | +10.0 / +13.2 | +11.6 / +12.9 | +1.1 / +2.2 | |
| | | | | | |
| weight of siblings 0.3, little read among fifty | +5.3 / +6.8 | +11.1 / +13.8 | +8.2 / +13.2 | +1.0 / +2.1 | |
| weight 0 | +5.6 / +7.6 | +11.4 / +13.4 | +10.3 / +13.5 | +1.2 / +2.4 | |
| little read of the whole host | +5.3 / +7.4 | +11.7 / +14.0 | +9.4 / +13.1 | +1.2 / +2.2 | |
| a credit of no floors for pages found | +2.7 / +0.9 | +10.5 / +13.4 | +6.3 / +8.7 | 0.0 / -0.5 | |
| of three floors at most | +4.5 / +6.6 | +9.9 / +13.5 | +7.3 / +12.4 | +0.3 / +1.9 | |
| | | | | | |
| no limit by vouching, a tenth for others | +6.2 / +8.2 | +11.6 / +12.7 | +12.7 / +13.6 | +0.6 / +2.1 | 16 / 21 |
| vouching, five a domain | +4.4 / +3.7 | +11.9 / +13.0 | +7.0 / +8.1 | -0.2 / +1.2 | 3.1 / 2.6 |
| vouching, three an entry | +6.0 / +3.9 | +10.9 / +12.9 | +6.7 / +6.7 | +0.9 / +2.4 | 0.3 / 0.8 |
| vouching, five an entry | +6.6 / +5.6 | +11.0 / +12.9 | +8.3 / +8.6 | +0.8 / +2.3 | 0.5 / 0.5 |
| vouching, ten an entry | +6.3 / +7.6 | +11.7 / +13.0 | +10.4 / +9.9 | +0.7 / +2.1 | 1.4 / 0.9 |
| | | | | | |
| the weight of siblings learnt | +6.6 / +5.4 | +11.4 / +12.3 | +8.4 / +8.7 | +1.0 / +2.2 | 0.5 / 0.5 |
| weights of eight features learnt | +6.4 / +6.4 | +11.2 / +13.6 | +9.1 / +12.6 | +1.0 / +2.3 | 1.7 / 9.9 |
| the same, of what pages brought | +5.1 / +7.2 | +9.5 / +13.2 | +11.8 / +13.7 | +0.9 / +1.8 | 7.6 / 15 |
| | | | | | |
| * the weight of siblings learnt | +5.6 / +6.5 | +8.4 / +9.1 | +7.7 / +9.1 | +1.8 / +1.7 | 0.4 / 0.4 |
| * and that of how little of the host was read | +5.7 / +6.7 | +8.3 / +9.4 | +8.8 / +10.4 | +1.7 / +1.7 | 0.5 / 3.6 |
| * and credit that decays by a fifth a cycle | +5.5 / +6.6 | +8.4 / +9.7 | +8.6 / +10.5 | +1.7 / +1.6 | 0.5 / 3.3 |
| * and a step of 0.5 instead of 0.3 with it | +5.8 / +6.3 | +8.5 / +9.5 | +8.8 / +10.7 | +1.8 / +1.7 | 0.4 / 4.0 |
| * and little read among fifty, not of the host | +5.3 / +6.0 | +8.4 / +7.5 | +8.0 / +9.4 | +1.6 / +1.7 | 0.4 / 1.9 |

- **Gained**: neighbours of the same host only, how much was read of the whole host, a limit for each domain. With
  neighbours of the host alone orders do not depend on how hosts are spread over shards.
- **Costs, and is kept**: vouching. Without it shop would be read 5 points better after 40 %, and a farm of 20
  domains would get a sixth of all orders early, where recomputed importance gives it next to nothing.
- **Did not gain**: siblings, whose learnt weight is from 0 to 0.2 here. They are kept since they gained 3 points on a
  real web, and a weight that is learnt costs nothing where they do not. Credit that decays, other steps. A bonus by how
  many pages of the host were read, 2 x 10 / (10 + pages), not by their share: on five seeds archive had +4.3 / +4.6
  instead of +6.3 / +5.9, portal +10.5 / +13.6 instead of +8.9 / +12.1, hosted -0.1 / +0.4 instead of +1.5 / +2.4.
- **Gained, and is not kept**: weights of more features. They learn that pages of little-read hosts rise more, which is
  true for traps as well: hostile pages get up to ten points more.
- **Costs as well**: the limit of a fifth for other orders. Without it portal is read 2 points better in the first tenth
  of a crawl (eight seeds), but traps on it get 31, 56 and 45 % of the pages read after 10, 20 and 40 %, not 19, 30 and
  37 (recomputed importance: 34, 60 and 50). Before a tenth of the pages was read, traps on portal do get more than by
  recomputed importance, 10 instead of 4 % after 5 %: other domains are read earlier, and theirs are among those.

**Held out.** On eight more seeds of each web it was ahead by as much, and on one seed of 40,000 pages; so it was on
three of seven webs of other styles, six seeds each, by 1.4 to 8.8 points after 20 % and 3.1 to 6.0 after 40 %. On the
other four it was as good, never more than 0.6 points behind in the mean: sites of which most pages are documents, webs
whose sites quote each other so much that nothing is hidden. Single seeds differ more: on one of eight portals it was 9
points behind at 10 %, because another large site was read first. On ten more webs with traps of either kind hostile
pages got 1.2 and 26 % of the pages read after 20 %, where recomputed importance gave them 6.2 and 59 %; on one of the
20 webs they got up to 18 points more for a while.

Not tried: sitemaps and the quality of pages, which made-up webs do not have.

## Results

"""


# Text about the figures at 10,000 pages, seeds 1 to 3: check it whenever the figures change.
OF_MANIPULATION = """\
# Manipulation

Whoever owns a page can make more pages at no cost. This page measures how much importance and how many crawl orders
that brings. `python -m benchmarks.experiments --only manipulation` measures it again, in ten minutes, and writes this
page; `opicflow experiment manipulation --out build/manipulation` is the experiment alone. Every figure has a seed. A
claim *holds* by the rules in [claims.py](../../pipelines/lab/experiments/manipulation/claims.py).

## The measurement

The web is *archive* of [discovery](discovery.md): 10,000 honest pages on some 170 sites. A manipulator has one page,
the *target*. One honest page links to it, and it links back. Then its owner makes k pages
([schemes.py](../../pipelines/lab/experiments/manipulation/schemes.py)):

| scheme | the manipulator makes |
|---|---|
| link farm | k pages on other domains, a hundred on each. The target links to all, and each links to the target |
| subdomains | the same, each page on a subdomain of its own of the target's domain, as with a wildcard in the DNS |
| trap | k pages of the target's host, to which the target links. Each names eight new URLs when it is read |
| announcements | k URLs of the target's host, announced as in a sitemap. No page links to them |
| redirect cycle | the target redirects to a page, that one to the next, and the last of the k pages to the target |

**Importance** ([gains.py](../../pipelines/lab/experiments/manipulation/gains.py)). All honest pages are read in every
round. After eight rounds the manipulation begins; importance is measured one round and eight rounds later. The pages of
farms, subdomains and redirect cycles are read in each of the eight rounds; pages of traps and announcements are known
and never read. For importance, a farm that is never read is a trap. The history policies are `certified` (the
default), `interpolation`, `variable` (the last eight visits of each page) and `all` (the
paper's, for a web that does not change).

**Orders** ([ordered_pages.py](../../pipelines/lab/experiments/manipulation/ordered_pages.py)). A crawl reads the web by
the orders of a ledger, 100 unread pages a day. The manipulation begins *early*, when 20 % of the honest pages were
read, or *late*, when 90 % were. The page that links to the target is then the read page of median importance. All that
is ordered in the next twenty days is read. The tables have the manipulator's part.

**Trust** is `opicflow rank --ranks importance,trust:@FILE,spam-mass` of the graph seen, with a tenth of the honest
sites in the file ([ranks](../guides/ranks.md#trust)).

## Results
"""

MEANING_OF_MANIPULATION = """\
## What the figures mean

**A page that is read is worth a vote, whoever made it.** A farm of 1,000 read pages takes its target from 0.003 to 5.6
% of all importance: nearly 2,000 times as much, and the highest rank of 11,000 pages. All pages of the farm together
hold 12 %. That is the exact PageRank of the web with the farm in it: no history policy can know that the pages are
worthless. The gain grows with the number of pages. One link from an honest page is enough to be found.

**History policies differ in speed.** Under `certified` the target of 1,000 pages has three quarters of its gain after
one round, under the others a sixth or less. After eight rounds `interpolation` and `variable` have three quarters and
more, `all` half: it divides what a page earned by all the time before.

**A page that is known and not read holds a small share of its own, and passes nothing on.** 5,000 such pages are a
third of all pages and hold 9 to 10 % of importance. The target has less than before, because there are more pages.

**Redirect cycles collect.** What enters never leaves. The whole cycle holds as much as a farm of that size, but each of
its pages about the same, so none becomes important.

**Trust sees through numbers.** However many pages are made, they are trusted only as far as honest pages lead there:
the target of the largest farm is 6,600 times as important, and trusted 3.2 times as much. (The trust that it passes to
its farm comes back, damped twice: at most 1 / (1 - 0.85 · 0.85) = 3.6 times.) So trust bounds the gain; spam mass alone
proves little. It is 0.98 or more for the targets of farms of 100 pages, but on two of the three webs it was above 0.97
before, when the target was as honest as any page: no good site was near. The change of a page's importance compared
with its trust is a better sign.

**While honest pages wait, orders are safe from these schemes.** The pages of a farm share what the target has, so each
is worth less than an honest page that somebody links to: 1 % of the orders at most. Traps whose pages lead on to each
other, and which many honest links enter, get far more on some webs: up to 39 % of the pages read on *portal with
traps* ([discovery](discovery.md)). **When honest pages run out, a manipulator gets all that is left**: half of the late
orders are all that honest pages do not use. This is where limits matter.

## What options do

- **A read farm.** Nothing bounds its importance. Trust shows that it grew without honest links; a policy `forget` for
  its hosts removes it ([refresh](../guides/refresh.md#policies)). Limits hold for each host or domain: with more of
  them it has more. With `--host-fetches 5` or `--domain-fetches 5` its part of the late orders grew from 50 to 74 %,
  because honest sites were limited as well.
- **Subdomains.** `--internal-weight 0 --same-site domain` takes their links away: the target has 0.011 % instead of
  5.6 %. But honest sites lose theirs, too: a farm on other domains gains twice as much with it (12.7 %).
  `--max-unread-per-host` and `--host-fetches` count exact hosts, and every page has its own: they lose no order.
  [Limits of domains](../guides/refresh.md#limits-of-domains) leave them a tenth or a fifth of their late orders.
- **A trap.** With `--unread-weight 0` unread pages hold only what links pay them: 0.005 instead of 2 %.
  `--host-fetches 5` leaves a trap 10 % of its late orders, `--max-unread-per-host 100` 18 %. Both cost honest orders of
  large hosts. The first delays them; the second removes unread pages until a page that links to them is read again.
  Limits of domains do the same, wherever its pages are, except that a domain at its `--max-unread-per-domain` learns
  more as its pages are read (38 % of its late orders). With `--max-share-per-domain 0.001` all its unread pages hold
  0.026 instead of 2 % of importance, however many they are.
- **Announcements.** With `--unread-weight 0` they hold nothing. With `--max-announced-per-domain 10` any number in a
  day is worth as much as ten. Limits of hosts and domains have the same effect as for a trap. `--unread-weight 0` keeps
  no order from them once honest pages run out.
- **A redirect cycle.** Nothing bounds its importance. It gets one order a day, whatever its size: each page must be
  read before the next one is known.
- **All but the cycle**: `--max-pages` (here 1.05 times the web) reduces the late part from 50 to about 30 % at no cost
  for honest pages, because it removes the poorest unread pages first.
- `--discovery-by learnt` explores hosts of which few pages were read: early manipulators get up to half a per cent that
  `--discovery-by importance` does not give. `--discovery-by found` gives a trap the most, since the URLs that it names
  come before honest pages that are found later.

Not bounded by any option: what pages that are *read* gain, and pages on many registrable domains, which cost their
owner money, or on domains that do not exist, which cost nothing. `--unread-weight 0` takes importance from the latter.
"""

OF_WORTH = """\
# Is it worth it?

What does a crawler gain if it follows opicflow's orders? On this page other crawlers and the orders of the literature
crawl the same made-up webs, with the same budget, failures and seed. `python -m benchmarks.experiments --only worth`
measures it again and writes this page; `opicflow experiment loop --out build/worth` is the experiment alone. A claim
*holds* by the rules in [claims.py](../../pipelines/lab/experiments/loop/claims.py).

## The competitors

opicflow runs as a crawler would run it. Every day the command `opicflow replay` reads the log of the day before into
its state (`--state`, `--now`), and the crawler fetches the orders that it writes. The log has what a crawler sees: URL,
time, status, digest, links, and the date that a server sends. Nothing else goes in: no true importance, no change
rates. The others see the same answers.

**Which page first**, on webs of [discovery](discovery.md):

- *Breadth-first*: the page that was found first. *Random*: any page that was found. *In-degree*: the page that most
  read pages link to.
- *Nutch's OPIC*: `OPICScoringFilter` of Apache Nutch 1.23-SNAPSHOT (commit 7906941) with its defaults. Its limit of 100
  links a page is left out.
- *Recomputed*: the PageRank of the graph seen, computed again every day.
- *Cash*, by the command: `--history interpolation --discovery-by cash`, the order of OPIC itself.
- *Estimate*, by the command: `--history interpolation --discovery-by importance`, importance as Adaptive OPIC
  estimates it.
- *Certified*, by the command: `--discovery-by importance`.
- *Learnt*, by the command: the default of `opicflow replay`.
- *Greedy by truth* has the true importance of the pages found. *Omniscient* has all pages and their true importance,
  found or not: no order can have read more.

**When to fetch again**, over a year. Webs have births, deaths, failures and false dates
([living_web.py](../../pipelines/lab/experiments/refresh/living_web.py)). On *power law* every page changes around once
in 14 days, whatever its importance. On *news*, of the style of portal, front pages and indexes change around once a
day, articles once in 120 days. On *calm*, of the style of archive, it is once in 60 and in 200 days.

- *Round robin*: the page that was not tried for the longest time.
- *Nutch adaptive*: `AdaptiveFetchSchedule` of Apache Nutch 1.23-SNAPSHOT (commit 7906941) with its defaults. Pages that
  are due compete by their *true* importance, which is better than any score that it has.
- *StormCrawler adaptive*: `AdaptiveScheduler` of Apache StormCrawler 3.4.1-SNAPSHOT (commit 384e98c) with its defaults.
  The page that has been due for the longest time comes first.
- *LambdaCrawl* (Kolobov, Peres, Lu and Horvitz, NeurIPS 2019): rates are learnt by the estimator of the authors' code
  (commit 62bde09); its optimum is computed again every day, with the *true* importance. Crawls come at random moments,
  as published.
- `harmonic` (the default), `thesis` and `freshness`: refresh strategies of opicflow, by its own importance and rates.
- *Oracle*: has true importance, true change rates and the list of pages that exist, and maximises freshness.

The rules of Nutch, StormCrawler and LambdaCrawl were written again from their sources
([adaptive_schedules.py](../../pipelines/lab/experiments/refresh/adaptive_schedules.py),
[lambda_crawl.py](../../pipelines/lab/experiments/refresh/lambda_crawl.py)); tests check them on examples that were
computed by hand. All plan once a day, and fetch nothing twice a day. *Obsolescence* is the number of changes since a
copy was fetched, in the mean; a copy is *fresh* while its content is that of the page.

## Results
"""

# Text about the figures at 20,000 pages, seed 1: check it whenever the figures change.
MEANING_OF_WORTH = """\
## What to know when reading the figures

- **Nutch and LambdaCrawl are given true importance**, which no real crawl has; opicflow and StormCrawler are not. So a
  part of their result is not their own.
- **Nutch's schedule leaves bandwidth unused.** Everything was read just before the year, so with its first interval
  of 30 days nothing is due for a month. Later, intervals of pages that do not change grow until too few pages are
  due.
- **StormCrawler's schedule needs more than the bandwidth.** Its longest interval of two weeks takes 7 % of the pages a
  day, so most of the time it fetches the page that has waited for the longest time, as round robin does. After three
  failures in a row a page is never fetched again.
- **LambdaCrawl fetches at random moments.** Fetches at even intervals at the same rates would keep more copies fresh:
  that is what `harmonic`, which has the same objective, does.
- **The oracle maximises freshness by importance, and nothing else.** It orders the page of which a fetch gains most,
  and gives up pages that change faster than they can be fetched: their copies are many changes behind.
- These are made-up webs. Each web has three seeds; single ones differ by some points where few pages have been read.

## Where the default is behind, and why

- **The first days of a crawl.** Orders that learn know nothing yet, and a fifth of their discovery explores. On
  *portal*, where a few pages have most of the importance, Nutch's OPIC has read more after 5 % of the pages, and more
  of the most important hundredth up to 10 %. *Recomputed*, the exact PageRank of the graph seen, is behind there as
  well, so it is not the computation: importance computed from few pages is a weak guide, and cash collects on pages
  that many link to and that wait. `--discovery-by cash` is near Nutch's OPIC there, and far behind the default later.
  From a fifth of the pages on, the default has read the most on every web.
- **All copies alike.** Round robin and StormCrawler keep more of *all* copies fresh, on every web. opicflow counts by
  importance: it spends the bandwidth on pages that matter.
- **Change rates must be learnt.** That is most of the distance to the oracle, and largest on *power law*, where
  importance and change are independent, and a page is fetched once in twenty days. With rates that policies state it is
  smaller ([refresh strategies](refresh-strategies.md)).
"""


BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def main() -> None:
    """Run the experiments, or go on with them, and write the pages."""
    parser = argparse.ArgumentParser(description="make the papers' experiments again, into docs/results")
    parser.add_argument("--out", type=Path, default=Path("build/experiments"), help="folder for measured rows")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages go")
    parser.add_argument(
        "--only",
        choices=["opic", "discovery", "manipulation", "sites", "worth", "communities"],
        help="only one of the pages",
    )
    parser.add_argument("more", nargs="*", help="options for `opicflow experiment`")
    chosen = parser.parse_args()
    if chosen.only in (None, "opic"):
        pages_of_their_own = (*_COMMUNITIES, DISCOVERY.name, MANIPULATION.name, SITES.name, LOOP.name)
        names = [name for name in EXPERIMENTS if name not in pages_of_their_own]
        measured = _measured(names, chosen.out, chosen.more)
        page = READING + DISCUSSION + "\n" + _shown(measured, chosen.out, chosen.docs / "experiments") + "\n"
        (chosen.docs / "experiments.md").write_text(page, encoding="utf-8")
    if chosen.only in (None, "discovery"):
        out = chosen.out / "discovery"
        measured = _measured([DISCOVERY.name], out, chosen.more)
        page = OF_DISCOVERY + "\n" + _shown(measured, out, chosen.docs / "discovery") + "\n"
        (chosen.docs / "discovery.md").write_text(page, encoding="utf-8")
    if chosen.only in (None, "manipulation"):
        out = chosen.out / "manipulation"
        shown = _shown(_measured([MANIPULATION.name], out, chosen.more), out, None)
        page = f"{OF_MANIPULATION}\n{shown}\n\n{MEANING_OF_MANIPULATION}"
        (chosen.docs / "manipulation.md").write_text(page, encoding="utf-8")
    if chosen.only in (None, "sites"):
        out = chosen.out / "sites"
        measured = _measured([SITES.name], out, chosen.more)
        (chosen.docs / "sites.md").write_text(f"{OF_SITES}\n{_shown(measured, out, None)}\n", encoding="utf-8")
    if chosen.only in (None, "worth"):
        out = chosen.out / "worth"
        shown = _shown(_measured([LOOP.name], out, chosen.more), out, chosen.docs / "worth")
        (chosen.docs / "worth.md").write_text(f"{OF_WORTH}\n{shown}\n\n{MEANING_OF_WORTH}", encoding="utf-8")
    if chosen.only in (None, "communities"):
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


def _shown(report: str, out: Path, plots: Path | None) -> str:
    """A report as a page shows it, and its plots beside that, if it has some."""
    if plots is not None:
        plots.mkdir(exist_ok=True)
        for plot in sorted((out / "plots").glob("*.svg")):
            shutil.copyfile(plot, plots / plot.name)
        report = report.replace("](plots/", f"]({plots.name}/")
    for name in sorted({path.name for path in (out / "data").iterdir()}):
        report = report.replace(f"Data: [{name}](data/{name}).\n", "")
    return report.rstrip()


if __name__ == "__main__":
    main()
