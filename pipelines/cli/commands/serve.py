"""`opicflow serve`: the pages of a replay's state or results, or of a stream, for a browser and for programs."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.configuration import is_default
from opicflow.pipelines.cli.options import add_kafka_options, add_state_options, connection_of, state_of
from opicflow.pipelines.cli.progress import explained_wait
from opicflow.pipelines.cli.settings_table import FLINK_MASTER, add_settings
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.values import natural, whole

if TYPE_CHECKING:
    from opicflow.pipelines.serve.sources import PageSource

PRINTS_AS_IT_GOES = True
EXAMPLES = """examples:
  opicflow serve --state state                         then open http://127.0.0.1:8321/
  opicflow serve --results results                     from the files of results: no history, no ledger to explain from
  opicflow serve --brokers localhost:9092 --flink-master localhost:8081       a stream, live
  opicflow serve --state state --host 0.0.0.0 --token-file token
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_state_options(parser)
    parser.add_argument("--results", type=Path, metavar="DIR", help="a folder of results instead of a state")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="the address to listen on (%(default)s: this machine)"
    )
    parser.add_argument("--port", type=natural, default=8321, metavar="N", help="the port; 0: any (%(default)s)")
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="a file with the token that viewers must know; or the variable OPICFLOW_TOKEN. Other hosts need one",
    )
    parser.add_argument(
        "--keep",
        type=whole,
        default=100_000,
        metavar="N",
        help="with --brokers: keep the N most important pages in memory (%(default)s)",
    )
    add_settings(parser, FLINK_MASTER, flink_master="with --brokers: Flink's REST, for the job's state")
    parser.add_argument("--name", metavar="NAME", help="of the job there (opicflow)")
    add_kafka_options(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until the command is interrupted."""
    try:
        from opicflow.pipelines.serve.server import bound_socket, serve
    except ModuleNotFoundError as missing:
        raise InputRefused(f"serve: {missing.name} is not installed: pip install 'opicflow[serve]'") from None
    from opicflow.pipelines.serve.access import TOKEN_VARIABLE, ServeRefused, is_this_machine, read_token

    token = read_token(options.token_file)
    if token is None and not is_this_machine(options.host):
        raise ServeRefused(
            f"--host {options.host}: others can reach it: give --token-file FILE, or set {TOKEN_VARIABLE}"
        )
    with bound_socket(options.host, options.port) as listening:
        source = _source_of(options)
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        with explained_wait("reading what is to be shown: a million pages take about seven seconds"):
            view = source.view()
        what = "a stream, live" if view.live else counted(len(view.table), "page")
        print_lines(f"{what}: http://{shown}:{port}/ (Ctrl-C ends it)", flush=True)
        serve(source, listening, options.host, token)
    return 0


def _source_of(options: argparse.Namespace) -> PageSource:
    if _is_stream(options):
        return _stream_of(options)
    if options.results is None:
        from opicflow.pipelines.serve.sources import StateSource

        if options.state is None:
            raise InputRefused(
                "serve: nothing to show: name a state with --state DIR, results with --results DIR, or a stream with "
                "--brokers HOST:PORT"
            )
        return StateSource(state_of(options))
    if options.state is not None and "state" not in options.configured:
        raise InputRefused("--state, --results: both are sources of pages: omit one")
    from opicflow.pipelines.serve.results_source import ResultsSource

    return ResultsSource(options.results)


def _is_stream(options: argparse.Namespace) -> bool:
    """Whether a stream is requested: by an option, or by the configuration, if that names no state."""
    sources = ("state", "results", "brokers", "properties")
    given = [name for name in sources if getattr(options, name) is not None and name not in options.configured]
    is_stream = "brokers" in given or "properties" in given
    if is_stream and given[0] in ("state", "results"):
        raise InputRefused(f"--{given[0]}, --{given[-1]}: both are sources of pages: omit one")
    if not given:
        is_stream = options.state is None and not (options.brokers is None and options.properties is None)
    if not is_stream and options.flink_master is not None and "flink_master" not in options.configured:
        raise InputRefused("--flink-master goes with a stream: give --brokers HOST:PORT, too")
    return is_stream


def _stream_of(options: argparse.Namespace) -> PageSource:
    from opicflow.connectors.flink.rest import FlinkCluster
    from opicflow.pipelines.serve.stream_source import FlinkWatch, StreamSource
    from opicflow.pipelines.stream.submit import JOB_NAME

    flink = None
    if options.flink_master is not None and not is_default(options, "flink_master"):
        flink = FlinkWatch(FlinkCluster(options.flink_master), options.name or JOB_NAME)
    return StreamSource(connection_of(options), options.prefix or "", options.keep, _now_ms, flink)


def _now_ms() -> int:
    return int(1000 * datetime.now(timezone.utc).timestamp())  # noqa: TID251 - how old a tick is depends on the time
