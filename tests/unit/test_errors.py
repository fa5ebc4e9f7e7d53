"""The exception family: one line, an exit code, and safe passage between processes."""

from __future__ import annotations

import copy

import pytest

from ralm_engine.errors import InputError, MissingDependencyError, RunError


@pytest.mark.parametrize(
    ("kind", "code"), [(InputError, 2), (MissingDependencyError, 3), (RunError, 4)]
)
@pytest.mark.parametrize("hint", ["", "do that"])
def test_errors_survive_the_way_between_processes(
    kind: type[InputError], code: int, hint: str
) -> None:
    """Fails when a worker's error cannot be rebuilt: copies and pickles reduce alike."""
    error = copy.copy(kind("this is wrong", hint=hint))
    assert type(error) is kind
    assert error.exit_code == code
    assert str(error) == ("this is wrong; do that" if hint else "this is wrong")
