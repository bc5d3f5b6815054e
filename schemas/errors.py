"""`UserError`, the base class of errors that a user can correct."""


class UserError(Exception):
    """A mistake that the user can correct. The message is one line: the mistake, its position, the remedy.

    The command line prints the message and exits with code 2. Every error of this kind, in every package, derives from
    this class.
    """
