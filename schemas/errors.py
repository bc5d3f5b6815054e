"""`UserError`, the base class of errors that a user can correct, and the messages of others."""


class UserError(Exception):
    """A mistake that the user can correct. The message is one line: the mistake, its position, the remedy.

    The command line prints the message and exits with `exit_code`. Every error of this kind, in every package, derives
    from this class.
    """

    exit_code = 2


def printable(text: str) -> str:
    r"""Return the text with every control character replaced by its code: a terminal must not execute it.

    >>> printable(chr(27) + "[2J")
    '\\x1b[2J'
    """
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def in_one_line(problem: Exception) -> str:
    """Return the message of an error of the system or a library for one line: at most 200 characters, never empty.

    It may quote bytes of a file: what cannot be printed becomes a blank.
    """
    text = "".join(one if one.isprintable() else " " for one in str(problem))
    return " ".join(text.split())[:200] or type(problem).__name__
