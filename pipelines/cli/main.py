"""`opicflow`: the command line. Exit codes: 0; 2 for an error that the user can correct, in one line; 1 for a bug.

`audit` also has 3, for "cannot be judged yet". `replay`, `validate` and `publish events` have 1 if all was rejected.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from typing import TYPE_CHECKING

from opicflow.pipelines.cli.configuration import Configuration
from opicflow.pipelines.cli.error_text import by_option, one_line, os_problem, user_problem
from opicflow.pipelines.cli.memory_limit import limit_reached
from opicflow.pipelines.cli.parser import EXIT_USER, build_parser, command_module, complete_words
from opicflow.pipelines.cli.standard_output import NAME, named_output
from opicflow.pipelines.cli.text import print_lines
from opicflow.schemas.errors import Interrupted, UserError, interrupted_after
from opicflow.schemas.interrupts import EXIT_INTERRUPTED, end_in_one_line

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

EXIT_BUG = 1

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SECONDS_BETWEEN_INTERRUPTS = 0.5
_OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""With Python's own 700 the objects of libraries are searched for garbage again and again while they are loaded."""

_interrupted = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns its exit code."""
    complete_words()
    sys.unraisablehook = _report_ignored
    if arguments is None:
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        signal.signal(signal.SIGALRM, _interrupt)
        for signal_ in _SIGNALS:
            if signal.getsignal(signal_) is not signal.SIG_IGN:  # a script's background commands ignore it
                signal.signal(signal_, _interrupt)
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
            if arguments is None:
                gc.freeze()  # the process ends: Python need not search all its objects for garbage once more
                if not _interrupted:
                    end_in_one_line("opicflow", *_SIGNALS)  # an exception could not be handled any more
    except BaseException as problem:
        if _interrupted or isinstance(problem, KeyboardInterrupt):  # imports may turn it into another exception
            signal.setitimer(signal.ITIMER_REAL, 0)
            reached = limit_reached()
            done = str(problem) if isinstance(problem, Interrupted) else "nothing was left half-written"
            with suppress(OSError):  # a terminal that was closed
                _print_error(reached or "; ".join(["interrupted", *filter(None, [done])]))
                sys.stderr.flush()
            os._exit(EXIT_USER if reached else EXIT_INTERRUPTED)  # another thread may still run a segment
        if not isinstance(problem, OSError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(problem, BrokenPipeError):  # as in `opicflow top | head`: no error
            return 0
        return _refuse(f"{NAME}: {problem.strerror}: correct this, and run the command again")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options in the arguments, completed by the configuration."""
    for argument in arguments:
        if "\0" in argument:  # no system call takes it
            raise UserError(f"argument {argument[:80]!r}: it contains a NUL character: correct it")
    options = build_parser(arguments).parse_args(arguments)
    if options.command is not None:
        Configuration.read(options.config).complete(options)
    return options


def _run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. Only errors of standard output are raised."""
    try:
        options = parse(arguments)
    except UserError as problem:
        return _refuse(one_line(problem))
    if options.command is None:
        build_parser(()).print_help()
        return 0
    if getattr(command_module(options.command), "PRINTS_AS_IT_GOES", False):
        with named_output(), interrupted_after(lambda: ""):  # what was printed may be a part
            return _run_command(options)
    results = io.StringIO()
    with redirect_stdout(results):
        code = _run_command(options)
    if printed := results.getvalue():  # on a full disk even nothing cannot be printed
        print(printed, end="")  # its lines are safe: see `print_lines`
    return code


def _run_command(options: argparse.Namespace) -> int:
    _silence_beam()
    module = command_module(options.command)
    try:
        return int(module.run(options))
    except BaseException as problem:
        if _interrupted and not isinstance(problem, Interrupted):  # Beam and compilers raise others for it
            raise KeyboardInterrupt from None
        if isinstance(problem, UserError):
            return _refuse(by_option(one_line(problem), options), problem.exit_code)
        if isinstance(problem, OSError) and problem.filename == NAME:
            raise
        if isinstance(problem, OSError):
            return _refuse(os_problem(problem, options))
        if not isinstance(problem, Exception):
            raise
        wrapped = user_problem(problem, options)
        if wrapped:
            return _refuse(wrapped)
        import traceback

        traceback.print_exc()
        _print_error("this is a bug; please report it with the lines above")
        return EXIT_BUG


def _silence_beam() -> None:
    """Silence Beam's loggers before its import: it warns of unused clouds, and logs its exceptions."""
    import logging

    logging.getLogger().setLevel(logging.ERROR)
    for name in ("common", "direct.executor"):
        logging.getLogger(f"apache_beam.runners.{name}").setLevel(logging.CRITICAL)


def _refuse(message: str, exit_code: int = EXIT_USER) -> int:
    _print_error(message)
    return exit_code


def _print_error(line: str) -> None:
    print_lines(f"opicflow: {line}", file=sys.stderr)  # it may quote what a stranger has written


def _interrupt(number: int, frame: object) -> None:
    """Interrupt the command, and repeat it until the command ends: an exception within a finaliser is lost."""
    global _interrupted
    _interrupted = True
    signal.setitimer(signal.ITIMER_REAL, _SECONDS_BETWEEN_INTERRUPTS)
    problem = sys.exc_info()[1]
    while problem is not None:
        if isinstance(problem, KeyboardInterrupt):
            return  # an interrupt is being handled, and must not be interrupted again
        problem = problem.__cause__ or problem.__context__
    raise KeyboardInterrupt


def _report_ignored(ignored: UnraisableHookArgs) -> None:
    """Report an exception that Python ignores, unless it is an interrupt: that is repeated."""
    if not (_interrupted and isinstance(ignored.exc_value, KeyboardInterrupt)):
        sys.__unraisablehook__(ignored)
