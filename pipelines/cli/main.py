"""`opicflow`: the command line. Exit codes: 0; 2 for what the user can mend, in one line; 1 for a bug.

`audit` has 3 for "cannot be judged yet".
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

_SECONDS_TO_BE_HEARD = 0.5

EXIT_BUG, EXIT_USER, EXIT_INTERRUPTED = 1, 2, 130

_interrupted = False

_REPLAY_EXAMPLES = """examples:
  opicflow replay crawl.jsonl                          the top pages of a crawl
  opicflow replay 'logs/*.jsonl.gz' --out results --report report.html
  zcat crawl.gz | opicflow replay -                    from another program (JSON lines)
  opicflow replay today.jsonl --state state            goes on from yesterday's ledger; a killed replay goes on too
  opicflow replay CC-*.warc.wat.gz --settle 10         every page visited once: the exact ranks of the graph seen
  opicflow replay --from kafka://localhost:9092 --to kafka://localhost:9092    from topics to topics
"""
_VALIDATE_EXAMPLES = """examples:
  opicflow validate crawl.jsonl
  opicflow validate 'logs/*.avro' --json
"""
_SHOW_EXAMPLES = """examples:
  opicflow show https://example.org/ --state state
"""
_SCHEDULE_EXAMPLES = """examples:
  opicflow schedule --state state                      who is fetched tomorrow, as things are
  opicflow schedule --state state --bandwidth 100000 --policy harmonic
  opicflow schedule --state state --bandwidth 100000 --compare
  opicflow schedule --state state --export frontier.csv
"""
_SIMULATE_EXAMPLES = """examples:
  opicflow simulate --out crawl.avro                   100,000 visits of a web of 10,000 pages
  opicflow simulate --out crawl.jsonl.gz --web hosts --strategy greedy --announce 10 --not-modified 0.5
  opicflow simulate --out crawl.avro --edges links.tsv --visits 1000000 --ranks exact.csv
"""
_COMPARE_EXAMPLES = """examples:
  opicflow compare results exact.csv                   a replay --out results, and simulate --ranks exact.csv
  opicflow compare yesterday.parquet today.parquet --top 100,10000 --worst 20
  opicflow compare ranks.csv ranks.csv --rank hubs --rank-b authorities --normalise
  opicflow subscribe importance --brokers localhost:9092 --format jsonl | opicflow compare - results --json
"""
_GRAPH_EXAMPLES = """examples:
  opicflow graph build 'logs/*.avro' --out web.graph --memory 512MB      out of core; killed, it goes on
  opicflow graph build --state state --out web.graph                     of the links that a replay remembers
  opicflow graph info web.graph
  opicflow graph check web.graph                                         is every byte as it was written?
"""
_RANK_EXAMPLES = """examples:
  opicflow rank crawl.jsonl                                              PageRank of all pages
  opicflow rank web.graph --out ranks.csv --memory 256MB --ranks importance,interest:xml,hubs,authorities
  opicflow rank web.graph --out ranks.parquet --ranks importance:@hosts.txt --gauss-seidel
  opicflow rank web.graph --out ranks.csv --start yesterday.csv --workers 2 --chaotic
  opicflow rank /shared/web.graph --work /shared/work --runner FlinkRunner --job-server localhost:8099
"""
_COMMUNITY_EXAMPLES = """examples:
  opicflow community plan --local hosts.txt --from own.jsonl --pages 500 --out orders.jsonl    what to read next
  opicflow community plan --local hosts.txt --from own.jsonl fetched.jsonl --pages 500         and then
  opicflow community rank --local hosts.txt --from own.jsonl fetched.jsonl --out ranks.csv     as in the whole web
  opicflow community impact --local hosts.txt --state state                                    who should belong to it
  opicflow community try --local hosts.txt --from crawl.jsonl --pages 100 --rounds 20          is it worth it?

hosts.txt names the local domain: a host or the URL of a page a line.
"""
_TOP_EXAMPLES = """examples:
  opicflow top --state state -n 20
  opicflow top --state state --unread                  the most important pages that were never read
  opicflow top --state state --host                    the most important hosts
"""
_SUBSCRIBE_EXAMPLES = """examples:
  opicflow subscribe importance --brokers localhost:9092 --follow          the top pages, live
  opicflow subscribe importance --brokers localhost:9092 --url https://example.org/
  opicflow subscribe crawl-orders --brokers localhost:9092 --follow | my-fetcher
"""
_TOPICS_EXAMPLES = """examples:
  opicflow topics create --brokers localhost:9092
  opicflow topics check --brokers kafka.example.org:9093 --properties client.properties
"""
_PUBLISH_EXAMPLES = """examples:
  opicflow publish events crawl.jsonl --brokers localhost:9092
  opicflow publish policy --brokers localhost:9092 --url https://example.org/ --every 6h
  opicflow publish policy --brokers localhost:9092 --host example.org --never --expires 2026-12-31T00:00:00Z
  opicflow publish policy policies.jsonl --brokers localhost:9092
  opicflow publish rules --drop-parameters tracking --fold-www --brokers localhost:9092
"""
_AUDIT_EXAMPLES = """examples:
  opicflow audit --brokers localhost:9092                                  are the books of all shards in order?
  opicflow audit --brokers localhost:9092 --since 2026-05-01T12:00:00Z     by what was told from then on
  opicflow audit --brokers localhost:9092 --follow                         say so whenever the answer changes

exit codes: 0 balanced, 2 something is wrong, 3 it cannot be judged yet
"""


_STREAM_EXAMPLES = """examples:
  opicflow stream --brokers localhost:9092 --flink-master localhost:8081 --job-server localhost:8099 \\
      --checkpoints file:///var/lib/opicflow                            from topics to topics, for months
  opicflow stream status --flink-master localhost:8081
  opicflow stream stop --flink-master localhost:8081                    with a savepoint
  opicflow stream upgrade --brokers … --flink-master … --checkpoints …  the same with this version of opicflow
"""
_REBUILD_EXAMPLES = """examples:
  opicflow rebuild --shards 32 --brokers localhost:9092 --flink-master localhost:8081 --job-server localhost:8099 \\
      --checkpoints file:///var/lib/opicflow
"""


_EXPERIMENT_EXAMPLES = """examples:
  opicflow experiment fig2 --out build/experiments --pages 10000 --runs 1     a quick look
  opicflow experiment all --out build/experiments       everything; stopped, the same command goes on
  opicflow experiment table1 community --out build/mine --edges links.tsv.gz           communities of your own web

What was measured is kept in DIR/parts: the same pages and seeds are not measured twice.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, and where help is."""
        self.exit(EXIT_USER, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns its exit code."""
    signal.signal(signal.SIGALRM, _interrupt)
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(signal_) is not signal.SIG_IGN:  # as in the background of a script
            signal.signal(signal_, _interrupt)
    said = io.StringIO()  # results come at the end, so that trouble with standard output is told from all other
    try:
        try:
            options = _parser().parse_args(arguments)
            if options.prints_as_it_goes:
                return _run(options)
            with redirect_stdout(said):
                code = _run(options)
            print(said.getvalue(), end="")
            return code
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _say("opicflow: interrupted; nothing was left half-written")
        sys.stderr.flush()
        os._exit(EXIT_INTERRUPTED)  # a segment may still be under way on another thread
    except OSError as problem:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(problem, BrokenPipeError):  # as behind `| head`: no mistake
            return 0
        return _refuse(f"standard output: {problem.strerror}: see to it, and run again")


def _run(options: argparse.Namespace) -> int:
    # Imported late: help and mistakes in the options come at once.
    from opicflow.pipelines.cli.commands import replay as commands
    from opicflow.schemas.errors import UserError

    try:
        module: Any = import_module(f"opicflow.pipelines.cli.commands.{options.module}")
        return int(getattr(module, options.command)(options))
    except BaseException as problem:
        if _interrupted:  # whatever Beam or a compiler made of it
            raise KeyboardInterrupt from None
        if isinstance(problem, UserError):
            return _refuse(commands.one_line(problem))
        if isinstance(problem, BrokenPipeError) and options.prints_as_it_goes:
            raise
        if isinstance(problem, OSError):
            return _refuse(commands.os_problem(problem, options))
        if not isinstance(problem, Exception):
            raise
        hidden = commands.user_problem(problem, options)
        if hidden:
            return _refuse(hidden)
        traceback.print_exc()
        _say("opicflow: this is a bug; please report it with the lines above")
        return EXIT_BUG


def _refuse(message: str) -> int:
    _say(f"opicflow: {message}")
    return EXIT_USER


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _interrupt(number: int, frame: object) -> None:
    """Interrupt the command, and see to it until it is: what is raised within a finaliser is heard by nobody."""
    global _interrupted
    _interrupted = True
    signal.setitimer(signal.ITIMER_REAL, _SECONDS_TO_BE_HEARD)
    problem = sys.exc_info()[1]
    while problem is not None:
        if isinstance(problem, KeyboardInterrupt):
            return  # it is on its way out, and must not be interrupted again
        problem = problem.__cause__ or problem.__context__
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="opicflow", description="Which pages of a crawl matter, computed while the crawl runs.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    _add_replay(commands)
    validate = _add(commands, "validate", "say what of a log would be rejected, and what would make it better")
    validate.epilog = _VALIDATE_EXAMPLES
    _add_logs(validate)
    _add_rules(validate)
    validate.add_argument("--json", action="store_true", help="print the findings as JSON")
    validate.add_argument("--most", type=_whole, default=10, metavar="N", help="show so many rejects (%(default)s)")
    show = _add(commands, "show", "show what the ledger of a state knows of one page")
    show.epilog = _SHOW_EXAMPLES
    show.add_argument("url", metavar="URL", help="the page; it need not be canonical")
    _add_state(show)
    top = _add(commands, "top", "show the most important pages of a state")
    top.epilog = _TOP_EXAMPLES
    _add_state(top)
    top.add_argument("-n", "--top", type=_whole, default=10, metavar="N", help="how many (%(default)s)")
    top.add_argument("--host", action="store_true", help="hosts instead of pages")
    top.add_argument("--unread", action="store_true", help="only pages that were never read")
    schedule = _add(
        commands, "schedule", "plan when the pages of a state are fetched again, with other options if you like"
    )
    schedule.epilog = _SCHEDULE_EXAMPLES
    _add_state(schedule)
    _add_budget(schedule, "--policy")
    schedule.add_argument("-n", "--top", type=_whole, default=10, metavar="N", help="show so many orders (%(default)s)")
    schedule.add_argument("--compare", action="store_true", help="show all policies side by side")
    schedule.add_argument("--export", type=Path, metavar="FILE", help="write the plan for a frontier: .csv or .jsonl")
    subscribe = _add(commands, "subscribe", "show the results that lie in topics, as they come", "subscribe")
    subscribe.epilog = _SUBSCRIBE_EXAMPLES
    subscribe.set_defaults(prints_as_it_goes=True)
    subscribe.add_argument(
        "stream", choices=["importance", "refresh-schedule", "crawl-orders", "rejects", "audit"], help="the topic"
    )
    subscribe.add_argument("--url", metavar="URL", help="of this page only")
    subscribe.add_argument("--min-score", type=float, metavar="S", help="only pages from this score (1 = average)")
    subscribe.add_argument("--top", type=_whole, metavar="N", help="the first N pages by their newest records")
    subscribe.add_argument("--since", metavar="TIME", help="what was published from then on")
    subscribe.add_argument("--new", action="store_true", help="only what is published from now on; with --follow")
    subscribe.add_argument("--follow", action="store_true", help="go on when all that is there was shown")
    subscribe.add_argument("--format", choices=["table", "jsonl"], help="table on a terminal, else JSON lines")
    _add_cluster(subscribe)
    _add_simulate(commands)
    _add_graph(commands)
    _add_rank(commands)
    _add_compare(commands)
    _add_community(commands)
    _add_topics(commands)
    _add_publish(commands)
    _add_stream(commands)
    _add_audit(commands)
    _add_experiment(commands)
    for command in (show, top, schedule):
        command.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add(commands: Any, name: str, help_: str, module: str = "replay") -> argparse.ArgumentParser:
    """A command: the function of its name in a module of `pipelines`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help_,
        description=help_[0].upper() + help_[1:] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(module=module, prints_as_it_goes=False)
    return parser


def _add_simulate(commands: Any) -> None:
    simulate = _add(commands, "simulate", "write the log of a crawl of a made-up web", module="simulate")
    simulate.epilog = _SIMULATE_EXAMPLES
    simulate.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the log to write: .avro, .jsonl or .jsonl.gz"
    )
    simulate.add_argument(
        "--ranks", type=Path, metavar="FILE", help="also write the exact importance of all pages: CSV"
    )
    simulate.add_argument(
        "--seed", type=_natural, default=0, metavar="S", help="another one, another crawl (%(default)s)"
    )
    simulate.add_argument("--quiet", action="store_true", help="no progress")
    web = simulate.add_argument_group("the web")
    web.add_argument("--web", choices=["power-law", "poisson", "hosts"], help="how pages link (power-law)")
    web.add_argument("--edges", metavar="FILE", help="the links of this edge list instead")
    web.add_argument("--pages", type=_whole, metavar="N", help="how many (10000)")
    web.add_argument("--links", type=float, metavar="N", help="a page in the mean (10)")
    web.add_argument("--dangling", type=_share, metavar="SHARE", help="of pages without links (0.1)")
    crawl = simulate.add_argument_group("the crawl")
    crawl.add_argument("--visits", type=_whole, default=100_000, metavar="N", help="how many (%(default)s)")
    crawl.add_argument(
        "--strategy",
        choices=["random", "cycle", "greedy", "xyleme", "breadth-first"],
        default="random",
        help="which page next; greedy = with the most waiting cash, xyleme = as often as important (%(default)s)",
    )
    crawl.add_argument(
        "--announce",
        type=_all_or_some,
        metavar="N",
        help="so many pages, and find the others by links; or all (all; breadth-first: 10)",
    )
    crawl.add_argument("--per-day", type=float, metavar="N", help="visits a day (every page once a week)")
    crawl.add_argument("--start", metavar="TIME", help="of the first visit (2026-01-01)")
    met = simulate.add_argument_group("what it meets")
    met.add_argument("--blocked", type=_share, default=0.05, metavar="SHARE", help="of pages, by robots (%(default)s)")
    met.add_argument("--failing", type=_share, default=0.02, metavar="SHARE", help="of all other visits (%(default)s)")
    met.add_argument("--never-read", type=_share, default=0.0, metavar="SHARE", help="of pages (%(default)g)")
    met.add_argument(
        "--not-modified", type=_share, default=0.0, metavar="SHARE", help="of servers: they answer 304 (%(default)g)"
    )


def _add_graph(commands: Any) -> None:
    graph = _add(commands, "graph", "build the link graph of a crawl on disk, or tell of one", module="rank")
    graph.epilog = _GRAPH_EXAMPLES
    whats = graph.add_subparsers(dest="what", required=True, metavar="WHAT", parser_class=_Parser)
    build = _add(whats, "build", "build the graph of crawl logs, or of what a ledger remembers", "rank")
    build.set_defaults(command="graph")
    _add_logs(build, "*")
    build.add_argument("--state", type=Path, metavar="DIR", help="the remembered links of a replay's state instead")
    build.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of the graph")
    build.add_argument("--json", action="store_true", help="print JSON")
    _add_building(build)
    for name, help_ in (("info", "say what is in a graph"), ("check", "read every byte of a graph, and verify it")):
        about = _add(whats, name, help_, "rank")
        about.set_defaults(command="graph")
        about.add_argument("graph", type=Path, metavar="GRAPH", help="the folder of a graph")
        if name == "info":
            about.add_argument("--json", action="store_true", help="print JSON")
        else:
            about.add_argument("--quiet", action="store_true", help="no progress")


def _add_building(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--memory", default="512MB", metavar="SIZE", help="how much to use, such as 4GB (%(default)s)")
    group = parser.add_argument_group("the graph")
    group.add_argument("--slice-pages", type=_whole, metavar="N", help="the pages of a slice (as the memory allows)")
    group.add_argument(
        "--ranks-at-once",
        type=_whole,
        default=2,
        metavar="N",
        help="make slices small enough for so many (%(default)s)",
    )
    group.add_argument(
        "--both-ways", action="store_true", help="every link counts in both directions, once, whatever its weight"
    )
    group.add_argument(
        "--category", action="append", default=[], metavar="PATTERN", help="a category of URLs, such as *.pdf"
    )
    _add_rules(parser)


def _add_rank(commands: Any) -> None:
    rank = _add(commands, "rank", "compute PageRank and its kin of a whole graph, out of core", module="rank")
    rank.epilog = _RANK_EXAMPLES
    rank.set_defaults(state=None)
    rank.add_argument(
        "logs", nargs="+", metavar="GRAPH|LOG", help="the folder of a graph, or crawl logs to make one of"
    )
    rank.add_argument(
        "--ranks",
        default="importance",
        metavar="LIST",
        help="with commas: importance, interest, hubs, authorities; personal with a colon: interest:xml (a category), "
        "importance:@FILE (ranks by page, #COLUMN; or a .txt of hosts), interest:importance (%(default)s)",
    )
    rank.add_argument("--out", type=Path, metavar="FILE", help="write them: .csv, .jsonl (also .gz), .parquet")
    rank.add_argument("-n", "--top", type=_whole, default=10, metavar="N", help="show so many pages (%(default)s)")
    rank.add_argument("--json", action="store_true", help="print JSON")
    how = rank.add_argument_group("how")
    how.add_argument("--damping", type=float, default=0.85, metavar="D", help="the share that links get (%(default)s)")
    how.add_argument(
        "--dangling",
        choices=["teleport", "normalise"],
        default="teleport",
        help="what dangling pages have goes to all pages, or is lost and made good alike, eq. 2.6 (%(default)s)",
    )
    how.add_argument(
        "--tolerance", type=float, default=1e-9, metavar="E", help="until the residual is that, in L1 (%(default)g)"
    )
    how.add_argument("--max-iterations", type=_whole, default=1000, metavar="N", help="or after so many (%(default)s)")
    how.add_argument("--start", type=Path, metavar="FILE", help="begin with the ranks of this file")
    how.add_argument("--gauss-seidel", action="store_true", help="use new slices as soon as they are there")
    how.add_argument("--workers", type=_whole, default=1, metavar="N", help="processes, a part each (%(default)s)")
    how.add_argument("--chaotic", action="store_true", help="workers do not wait for each other")
    how.add_argument(
        "--work", type=Path, metavar="DIR", help="where vectors lie meanwhile, from which a killed run goes on (GRAPH)"
    )
    beam = rank.add_argument_group("as Beam jobs, for graphs beyond one machine (docs/ranks.md)")
    beam.add_argument(
        "--runner", metavar="NAME", help="a Beam runner, such as FlinkRunner; DirectRunner = this process"
    )
    beam.add_argument("--job-server", metavar="HOST:PORT", help="Beam's job server, for the FlinkRunner")
    beam.add_argument("--worker-command", metavar="FILE", help="opicflow-worker, where it is on the TaskManagers")
    beam.add_argument(
        "--iterations-per-job", type=_whole, default=20, metavar="N", help="unrolled in one job (%(default)s)"
    )
    beam.add_argument("--beam-option", action="append", default=[], metavar="OPTION", help="for the runner; repeatable")
    _add_building(rank)


def _add_community(commands: Any) -> None:
    community = _add(
        commands, "community", "the ranks of some hosts in the whole web, by reading a few pages more", "community"
    )
    community.epilog = _COMMUNITY_EXAMPLES
    whats = community.add_subparsers(dest="what", required=True, metavar="WHAT", parser_class=_Parser)
    for name, help_ in (
        ("plan", "write the pages to read next, as crawl orders"),
        ("rank", "rank the local domain, as the whole web would as far as it was read"),
        ("impact", "list pages of others that give most to the local domain"),
        ("try", "see with a crawl that you have how many pages are enough"),
    ):
        what = _add(whats, name, help_, "community")
        what.set_defaults(command="community")
        what.add_argument(
            "--local", type=Path, required=True, metavar="FILE", help="the local domain: a host or a URL a line"
        )
        what.add_argument(
            "--from",
            dest="logs",
            nargs="+",
            metavar="LOG",
            help="crawl logs of all that was read: JSON lines, Avro, WARC, WAT or edge lists; - for standard input",
        )
        what.add_argument("--state", type=Path, metavar="DIR", help="a replay's state with --remember-links instead")
        if name in ("plan", "try"):
            what.add_argument(
                "--pages", type=_whole, required=True, metavar="K", help="how many" + " a round" * (name == "try")
            )
        if name == "plan":
            what.add_argument(
                "--select",
                choices=["influence", "flow", "linkers", "importance", "random"],
                default="influence",
                help="those that move the local ranks most; that receive most; that most pages link to; that the "
                "ledger of --state finds most important; any (%(default)s)",
            )
        if name == "try":
            what.add_argument("--rounds", type=_whole, default=20, metavar="T", help="how many (%(default)s)")
            what.set_defaults(select="")
        if name in ("plan", "try"):
            what.add_argument("--seed", type=_natural, default=0, metavar="N", help="of random (%(default)s)")
        if name == "plan":
            what.add_argument("--out", type=Path, metavar="FILE", help="write the orders: .jsonl or .avro")
        if name == "rank":
            what.add_argument("--out", type=Path, metavar="FILE", help="write them: .csv, .jsonl (also .gz), .parquet")
        if name != "try":
            what.add_argument("-n", "--top", type=_whole, default=10, metavar="N", help="show so many (%(default)s)")
        what.add_argument(
            "--damping", type=float, default=0.85, metavar="D", help="the share that links get (%(default)s)"
        )
        what.add_argument("--json", action="store_true", help="print JSON")
        what.add_argument("--quiet", action="store_true", help="no progress")
        _add_rules(what)


def _add_compare(commands: Any) -> None:
    compare = _add(commands, "compare", "say how far the ranks of two files are apart", module="compare")
    compare.epilog = _COMPARE_EXAMPLES
    compare.add_argument(
        "a", metavar="A", help="ranks: JSON lines, CSV, Avro or Parquet; a folder that a replay wrote; - for stdin"
    )
    compare.add_argument("b", metavar="B", help="the same; relative errors are of A, as if B were right")
    compare.add_argument("--rank", default="importance", metavar="NAME", help="the column to compare (%(default)s)")
    compare.add_argument("--rank-b", metavar="NAME", help="the one of B, if it has another name there")
    compare.add_argument(
        "--top",
        type=_sizes,
        default=(10, 100, 1000),
        metavar="K,K",
        help="how many of the K most important pages are in common (10,100,1000)",
    )
    compare.add_argument(
        "--worst", type=_natural, default=10, metavar="N", help="show so many pages that differ most (%(default)s)"
    )
    compare.add_argument("--normalise", action="store_true", help="scale the ranks of each file to a sum of 1 first")
    compare.add_argument("--json", action="store_true", help="print JSON")


def _add_publish(commands: Any) -> None:
    publish = _add(commands, "publish", "send crawl events, or what people say of pages, to topics", module="publish")
    publish.epilog = _PUBLISH_EXAMPLES
    whats = publish.add_subparsers(dest="what", required=True, metavar="WHAT", parser_class=_Parser)
    events = _add(whats, "events", "send the events of crawl logs to crawl-events, what is none to rejects", "publish")
    _add_logs(events)
    events.add_argument("--rate", type=_positive, metavar="N", help="events a second at most")
    events.add_argument("--partition", type=_natural, metavar="P", help="all to this one, in the order of the logs")
    events.add_argument("--quiet", action="store_true", help="no progress")
    policy = _add(whats, "policy", "say when pages are fetched, and more (docs/refresh.md)", "publish")
    policy.add_argument("file", nargs="?", type=Path, metavar="FILE", help="Policy records as JSON lines")
    about = policy.add_argument_group("of what").add_mutually_exclusive_group()
    about.add_argument("--url", metavar="URL", help="a page; it need not be canonical")
    about.add_argument("--host", metavar="HOST", help="the pages of a host")
    about.add_argument("--url-prefix", metavar="URL", help="pages whose URLs begin so: at least a whole host and a /")
    about.add_argument("--category", type=_natural, metavar="N", help="the pages of a category")
    about.add_argument("--all", action="store_true", help="the whole crawl")
    said = policy.add_argument_group("what of it")
    said.add_argument("--crawl-now", action="store_true", help="fetch them now, once")
    said.add_argument("--never", action="store_true", help="do not fetch them again")
    said.add_argument("--every", metavar="SPAN", help="fetch them just so often: 30min, 6h, 2d, 1w")
    said.add_argument("--changes-per-day", type=float, metavar="X", help="they change so often")
    said.add_argument("--factor", type=float, metavar="F", help="of their importance in refreshing")
    said.add_argument("--drop", action="store_true", help="let them go, once; links may bring them back")
    said.add_argument("--forget", action="store_true", help="let them go, and do not learn them again")
    said.add_argument("--shortest", metavar="SPAN", help="between two fetches, whatever the budget says")
    said.add_argument("--longest", metavar="SPAN", help="between two fetches")
    said.add_argument("--host-fetches", type=float, metavar="N", help="a day at most, of the host or of every host")
    said.add_argument("--bandwidth", type=float, metavar="N", help="fetches a day of the whole crawl")
    said.add_argument("--discovery-share", type=float, metavar="S", help="of the bandwidth, for unread pages")
    said.add_argument("--refresh-policy", metavar="NAME", help="thesis, freshness, harmonic, importance, …")
    said.add_argument("--default", action="store_true", help="take back what was said of it")
    note = policy.add_argument_group("when, and by whom")
    note.add_argument("--expires", metavar="TIME", help="until then, such as 2026-12-31T00:00:00Z")
    note.add_argument("--at", metavar="TIME", help="from when it holds (now)")
    note.add_argument("--publisher", metavar="NAME", help="who says it: for people")
    rules = _add(whats, "rules", "other rules of URLs and links for a stream that runs, from now on", "publish")
    _add_rules(rules)
    rules.add_argument("--ledger", metavar="TOPIC", help="the logs of the stream (page-ledger)")
    for what in (events, policy, rules):
        what.add_argument("--json", action="store_true", help="print JSON")
        _add_cluster(what)


def _add_experiment(commands: Any) -> None:
    experiment = _add(commands, "experiment", "make the papers' experiments again, and others", "experiment")
    experiment.epilog = _EXPERIMENT_EXAMPLES
    experiment.add_argument(
        "name",
        nargs="+",
        choices=[
            *("all", "fig2", "fig3", "fig4", "fig5", "fig6", "growing", "trouble", "discovery", "stated"),
            *("table1", "table2", "influence", "community"),
        ],
        help="a figure of the paper, or growing webs, pages that cannot be read, discovery, what estimates state; of "
        "communities: sites, topics, what one page does for them, round by round",
    )
    experiment.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the report, plots and data")
    experiment.add_argument("--pages", type=_whole, metavar="N", help="of each web (100000; of communities 300000)")
    experiment.add_argument("--runs", type=_whole, metavar="R", help="seeds to take means of (2; of communities 5)")
    experiment.add_argument("--edges", metavar="FILE", help="of communities: the web of this edge list instead")
    experiment.add_argument("--seed", type=_natural, default=1, metavar="S", help="the first of them (%(default)s)")
    experiment.add_argument("--processes", type=_whole, metavar="N", help="at once (as many as there are cores)")
    experiment.add_argument("--quiet", action="store_true", help="no progress")


def _add_audit(commands: Any) -> None:
    audit = _add(commands, "audit", "say whether the books of all shards balance, to the unit", module="audit")
    audit.epilog = _AUDIT_EXAMPLES
    audit.set_defaults(prints_as_it_goes=True)
    audit.add_argument("--since", metavar="TIME", help="by what was told from then on; an hour is plenty")
    audit.add_argument("--follow", action="store_true", help="go on, and print a line when the answer changes")
    audit.add_argument(
        "--prove", action="store_true", help="read all logs again, and compare with what the ledgers answer"
    )
    audit.add_argument("--ledger", metavar="TOPIC", help="the topic of the ledgers' logs, for --prove (page-ledger)")
    audit.add_argument("--json", action="store_true", help="print JSON; with --follow a line each")
    _add_cluster(audit)


def _add_topics(commands: Any) -> None:
    topics = _add(commands, "topics", "make the topics, and say what of them would lose data", module="topics")
    topics.epilog = _TOPICS_EXAMPLES
    actions = topics.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=_Parser)
    create = _add(actions, "create", "make the topics that are missing, and check them all", module="topics")
    create.add_argument("--replication", type=_whole, metavar="N", help="copies of each (3, or as many as brokers)")
    check = _add(actions, "check", "say what of the topics would lose data; exit code 2 if anything", module="topics")
    for action in (create, check):
        action.set_defaults(prints_as_it_goes=True)
        action.add_argument("--shards", type=_whole, metavar="N", help="partitions of page-ledger (8)")
        action.add_argument("--json", action="store_true", help="print JSON")
        _add_cluster(action)
    for option, partitions, which in (("--result-partitions", 8, "results"), ("--event-partitions", 6, "crawl-events")):
        create.add_argument(
            option, type=_whole, default=partitions, metavar="N", help=f"partitions of {which} (%(default)s)"
        )
        check.set_defaults(**{option.strip("-").replace("-", "_"): partitions})


def _add_stream(commands: Any) -> None:
    stream = _add(commands, "stream", "compute importance and schedules while the crawl runs, on Flink", "stream")
    stream.epilog = _STREAM_EXAMPLES
    stream.add_argument(
        "action",
        nargs="?",
        default="start",
        choices=["start", "status", "stop", "upgrade"],
        help="%(default)s; status = how it goes; stop = with a savepoint; upgrade = stop, and go on with this version",
    )
    stream.add_argument(
        "--from-savepoint", metavar="PATH", help="go on from a savepoint or checkpoint; 'latest' = newest"
    )
    rebuild = _add(commands, "rebuild", "make all ledgers anew from crawl-events, in any number", "stream")
    rebuild.epilog = _REBUILD_EXAMPLES
    rebuild.add_argument("--to-ledger", metavar="TOPIC", help="the new topic of their logs (page-ledger-N)")
    rebuild.add_argument("--replication", type=_whole, metavar="N", help="copies of it (3, or as many as brokers)")
    for command in (stream, rebuild):
        command.set_defaults(prints_as_it_goes=True)
        command.add_argument(
            "--shards",
            type=_whole,
            required=command is rebuild,
            metavar="N",
            help="how many ledgers: the partitions of their topic",
        )
        command.add_argument("--ledger", metavar="TOPIC", help="the topic of the ledgers' logs (page-ledger)")
        command.add_argument("--json", action="store_true", help="print JSON")
        _add_cluster(command)
        _add_flink(command)
        _add_counting(command)
        _add_rules(command)
        _add_budget(command, "--refresh-policy")
        _add_focus(command)


def _add_flink(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where it runs (docs/operations.md)")
    group.add_argument("--runner", default="FlinkRunner", metavar="NAME", help="%(default)s")
    group.add_argument(
        "--flink-master", default="localhost:8081", metavar="HOST:PORT", help="Flink's REST (%(default)s)"
    )
    group.add_argument(
        "--job-server", metavar="HOST:PORT", help="Beam's job server; without, Beam starts one of its own"
    )
    group.add_argument("--job-server-jar", metavar="FILE", help="the jar it starts; without, Beam fetches it")
    group.add_argument("--name", metavar="NAME", help="of the job (opicflow)")
    group.add_argument(
        "--checkpoints", metavar="URL", help="a folder that all TaskManagers see, such as file:///… or s3://…"
    )
    group.add_argument(
        "--checkpoint-seconds", type=_positive, default=10.0, metavar="S", help="from one to the next (%(default)g)"
    )
    group.add_argument(
        "--state-backend", choices=["rocksdb", "heap"], default="rocksdb", help="heap for small ledgers (%(default)s)"
    )
    group.add_argument("--parallelism", type=_whole, metavar="N", help="slots to use (all that are free)")
    group.add_argument(
        "--workers", type=_whole, default=2, metavar="N", help="Python workers a TaskManager (%(default)s)"
    )
    group.add_argument("--worker-command", metavar="FILE", help="opicflow-worker, where it is on the TaskManagers")
    group.add_argument("--worker-logs", metavar="DIR", help="where workers write their logs")
    group.add_argument("--worker-image", metavar="IMAGE", help="a container image instead of the command")
    group.add_argument("--tick-seconds", type=_positive, default=1.0, metavar="S", help="between cuts (%(default)g)")
    group.add_argument(
        "--snapshot-mb",
        type=_positive,
        default=16.0,
        metavar="N",
        help="of a log from one snapshot of its ledger to the next, at least (%(default)g)",
    )
    group.add_argument("--beam-option", action="append", default=[], metavar="OPTION", help="for Beam; repeatable")
    group.add_argument("--pulse-ms", type=_whole, default=250, help=argparse.SUPPRESS)
    group.add_argument("--bundle-ms", type=_whole, default=250, help=argparse.SUPPRESS)


def _add_cluster(parser: argparse.ArgumentParser, brokers: bool = True) -> None:
    """How to reach Kafka. `connection_of` in `pipelines.cluster` makes a `Connection` of it."""
    group = parser.add_argument_group("how to reach Kafka (docs/kafka.md)")
    if brokers:
        group.add_argument("--brokers", metavar="HOST:PORT", help="of the cluster; several with commas between")
    group.add_argument("--properties", metavar="FILE", help="settings such as security.protocol, and all secrets")
    group.add_argument("--registry", metavar="URL", help="a schema registry; without one Avro says what it is itself")
    group.add_argument("--prefix", default="", metavar="TEXT", help="what the names of all topics begin with")


def _add_logs(parser: argparse.ArgumentParser, at_least: str = "+") -> None:
    parser.add_argument(
        "logs",
        nargs=at_least,
        metavar="LOG",
        help="JSON lines, Avro, WARC, WAT or an edge list; plain, gzip or zstd; a path, a glob, - for standard input, "
        "or a URL that Beam's file systems open",
    )


def _add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="the folder of a replay's state")


def _add_rules(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which addresses are one page, and what links weigh")
    group.add_argument(
        "--drop-parameters",
        metavar="NAMES",
        help="query parameters that make no page: names with commas, * at the end for any; 'tracking' and 'session' "
        "stand for the usual ones",
    )
    group.add_argument("--fold-www", action="store_true", default=None, help="www.example.org is example.org")
    group.add_argument("--fold-https", action="store_true", default=None, help="http pages are the https ones")
    group.add_argument("--internal-weight", type=float, metavar="W", help="of links within a site (1)")
    group.add_argument("--external-weight", type=float, metavar="W", help="of links to other sites (1)")
    group.add_argument("--nofollow-weight", type=float, metavar="W", help="of nofollow, ugc and sponsored links (0)")
    group.add_argument("--same-site", choices=["host", "domain"], help="what a site is: a host, or what was registered")


def _add_budget(parser: argparse.ArgumentParser, policy: str) -> None:
    group = parser.add_argument_group("when pages are fetched again (docs/refresh.md)")
    group.add_argument("--bandwidth", type=float, metavar="N", help="fetches a day (as many as the crawl made)")
    group.add_argument(
        policy, dest="refresh_policy", metavar="NAME", help="thesis, freshness, harmonic, importance, greedy or uniform"
    )
    group.add_argument("--cycle", type=float, metavar="HOURS", help="how often orders are given: a page once (24)")
    group.add_argument("--discovery-share", type=float, metavar="S", help="of the bandwidth, for unread pages (0.25)")
    group.add_argument("--discover-by", metavar="NAME", help="cash (the most waiting cash first) or estimate")
    group.add_argument("--host-fetches", type=float, metavar="N", help="of a host a day at most")
    group.add_argument("--shortest-interval", type=float, metavar="SECONDS", help="between two fetches (3600)")
    group.add_argument("--longest-interval", type=float, metavar="DAYS", help="between two fetches (365)")


def _add_counting(parser: argparse.ArgumentParser) -> Any:
    count = parser.add_argument_group("how to count")
    count.add_argument("--history", metavar="NAME", help="interpolation (the default), all, variable, fixed, …")
    window = count.add_mutually_exclusive_group()
    window.add_argument("--window-turns", type=float, metavar="T", help="of the histories with a window (8)")
    window.add_argument("--window-days", type=float, metavar="DAYS", help="the window in days of event time")
    count.add_argument("--damping", type=float, metavar="D", help="the share of cash that follows links (0.85)")
    count.add_argument("--remember-links", action="store_true", default=None, help="keep 8 bytes a link: see the guide")
    count.add_argument("--max-pages", type=_whole, metavar="N", help="let the poorest unread pages go above so many")
    count.add_argument("--max-unread-per-host", type=_whole, metavar="N", help="the same for the unread of one host")
    return count


def _add_focus(parser: argparse.ArgumentParser) -> Any:
    focus = parser.add_argument_group("what to focus on (docs/refresh.md)")
    focus.add_argument("--by-media", action="store_true", default=None, help="categories html, xml, feed, pdf, other")
    focus.add_argument("--category", action="append", default=[], metavar="PATTERN", help="one of URLs such as *.pdf")
    focus.add_argument("--bonus", action="append", default=[], metavar="NAME=S", help="of links to a category's pages")
    focus.add_argument("--unread-weight", type=float, metavar="W", help="of unread pages in dividends (1)")
    return focus


def _add_replay(commands: Any) -> None:
    replay = _add(commands, "replay", "compute the importance of all pages of a crawl log")
    replay.epilog = _REPLAY_EXAMPLES
    _add_logs(replay, "*")
    topics = replay.add_argument_group("Kafka instead of files (docs/kafka.md)")
    topics.add_argument(
        "--from", dest="from_", metavar="ADDRESS", help="read kafka://HOST:PORT/crawl-events, up to now"
    )
    topics.add_argument("--since", metavar="TIME", help="leave out what is older, such as 2026-05-01 or …T12:00:00Z")
    topics.add_argument("--until", metavar="TIME", help="leave out this and what is newer")
    topics.add_argument("--to", metavar="ADDRESS", help="send the results to the topics of kafka://HOST:PORT")
    _add_cluster(replay, brokers=False)
    out = replay.add_argument_group("what comes out")
    out.add_argument("--out", type=Path, metavar="DIR", help="write importance, rejects and summary.json there")
    out.add_argument("--format", choices=["jsonl", "avro", "parquet"], default="jsonl", help="of these (%(default)s)")
    out.add_argument("--top", type=_whole, default=10, metavar="N", help="show so many pages (%(default)s)")
    out.add_argument("--report", type=Path, metavar="FILE", help="write a report as one HTML page")
    out.add_argument("--publications", action="store_true", help="also write what would be published during the crawl")
    out.add_argument("--json", action="store_true", help="print the summary as JSON")
    out.add_argument("--quiet", action="store_true", help="no progress")
    count = _add_counting(replay)
    count.add_argument("--settle", type=_whole, default=0, metavar="ROUNDS", help="settle the ranks of the graph seen")
    _add_rules(replay)
    _add_budget(replay, "--refresh-policy")
    focus = _add_focus(replay)
    focus.add_argument("--policies", metavar="FILE", help="publications: JSON lines, or the topic of kafka://HOST:PORT")
    focus.add_argument("--factor", action="append", default=[], metavar="NAME=F", help="of a category's importance")
    run = replay.add_argument_group("how to run")
    run.add_argument("--state", type=Path, metavar="DIR", help="keep the ledger there, and go on from it")
    run.add_argument("--runner", default="DirectRunner", metavar="NAME", help="a Beam runner; %(default)s = in-process")
    run.add_argument("--beam-option", action="append", default=[], metavar="OPTION", help="for the runner; repeatable")
    run.add_argument("--segment-mb", type=_whole, default=256, metavar="MB", help=argparse.SUPPRESS)


def _natural(text: str) -> int:
    if not text.isdecimal() or not int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number from 0")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 1e-3 <= number <= 1e9:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number from 0.001")
    return number


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no share from 0 to 1")
    return share


def _all_or_some(text: str) -> int:
    """How many pages; 0 = all."""
    return 0 if text == "all" else _whole(text)


def _whole(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 40:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no positive whole number")
    return int(text)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(_whole, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
