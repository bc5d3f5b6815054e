"""`UserError`: what a user can mend."""


class UserError(Exception):
    """A mistake that the user can correct. The message is one line: what is wrong, where, and what to do.

    The command line prints the message and exits with code 2. Every error of this kind, in every package, derives from
    this class.
    """
