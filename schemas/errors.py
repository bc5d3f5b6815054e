"""`UserError`, the base class of errors that a user can correct, `Interrupted`, and the messages of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UserError(Exception):
    """A mistake that the user can correct. The message is one line: the mistake, its position, the remedy.

    The command line prints the message and exits with `exit_code`. Every error of this kind, in every package, derives
    from this class.
    """

    exit_code = 2


class Interrupted(KeyboardInterrupt):
    """An interrupt of something that can be half done. The message is one line: what was done, and how to go on."""


@contextmanager
def interrupted_after(words: Callable[[], str]) -> Iterator[None]:
    """Turn an interrupt of what is done inside into `Interrupted` with these words, unless it has some."""
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(words()) from None


def printable(text: str) -> str:
    r"""Return the text with the code of every control character: a terminal must not execute it, or turn text round.

    >>> printable(chr(27) + "[2J"), printable("a" + chr(0x202E))
    ('\\x1b[2J', 'a\\u202e')
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}" for c in text)


def in_one_line(problem: Exception) -> str:
    """Return the message of an error of the system or a library for one line: at most 200 characters, never empty.

    It may quote bytes of a file: what cannot be printed becomes a blank.
    """
    text = "".join(one if one.isprintable() else " " for one in str(problem))
    return " ".join(text.split())[:200] or type(problem).__name__
