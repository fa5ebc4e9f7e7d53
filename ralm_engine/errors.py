"""The exception family. Every error a user can cause says what, where and what to do."""

from __future__ import annotations

import functools
from typing import Any


class RalmError(Exception):
    """Base of all errors that the command line prints as one line.

    Args:
        message: what is wrong and where, with the offending value.
        hint: the next action, in the imperative; empty when the message says it already.
    """

    exit_code = 4

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes: a keyword-only argument needs help to be unpickled."""
        return functools.partial(type(self), hint=self.hint), (self.message,)

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class InputError(RalmError):
    """Wrong usage, configuration or data: exit code 2."""

    exit_code = 2


class MissingDependencyError(RalmError):
    """The environment lacks something the job needs: exit code 3."""

    exit_code = 3


class RunError(RalmError):
    """The job started and could not be finished: exit code 4."""

    exit_code = 4
