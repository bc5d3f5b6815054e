"""`opicflow serve`: the pages of a replay's state or results, for a browser and for programs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import add_state_options, natural, state_of

if TYPE_CHECKING:
    from opicflow.pipelines.serve.sources import PageSource

PRINTS_AS_IT_GOES = True
EXAMPLES = """examples:
  opicflow serve --state state                         then open http://127.0.0.1:8321/
  opicflow serve --results results                     from the files of results: no history, no ledger to explain from
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
    source = _source_of(options)
    pages = len(source.view().table)
    with bound_socket(options.host, options.port) as listening:
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"{pages:,} pages: http://{shown}:{port}/ (Ctrl-C ends it)", flush=True)
        serve(source, listening, options.host, token)
    return 0


def _source_of(options: argparse.Namespace) -> PageSource:
    if options.results is None:
        from opicflow.pipelines.serve.sources import StateSource

        return StateSource(state_of(options))
    if options.state is not None and "state" not in options.configured:
        raise InputRefused("--state, --results: pages come from one of them: omit the other")
    from opicflow.pipelines.serve.results_source import ResultsSource

    return ResultsSource(options.results)
