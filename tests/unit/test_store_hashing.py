"""Content hashes depend on contents and relative names, and on nothing else."""

from __future__ import annotations

import hashlib

import pytest

from ralm_engine.errors import InputError
from ralm_engine.store.hashing import hash_file, hash_path, hash_value


def test_a_file_hash_is_sha256_of_its_bytes(tmp_path):
    """Fails if anything but the bytes takes part."""
    file = tmp_path / "x"
    file.write_bytes(b"abc" * 1_000_000)
    assert hash_file(file) == hashlib.sha256(b"abc" * 1_000_000).hexdigest()
    assert hash_path(file) == hash_file(file)


def test_a_directory_hash_follows_names_and_contents_not_the_place(tmp_path):
    """Fails if a copy elsewhere differs, or a renamed, changed or moved byte goes unnoticed."""

    def tree(name, entries):
        for path, text in entries.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return hash_path(tmp_path / name)

    original = tree("one", {"a": "xy", "sub/b": "z"})
    assert tree("two", {"sub/b": "z", "a": "xy"}) == original
    others = [{"a": "xz", "sub/b": "z"}, {"a": "xy", "sub/c": "z"}, {"ax": "y", "sub/b": "z"}]
    hashes = [tree(f"other{number}", entries) for number, entries in enumerate(others)]
    assert len({original, *hashes}) == 4


def test_a_missing_path_is_an_input_error_with_its_name(tmp_path):
    """Fails if a lost model file shows as a traceback."""
    with pytest.raises(InputError, match="nothing-here"):
        hash_path(tmp_path / "nothing-here")


def test_a_value_hash_ignores_the_order_of_keys_only():
    """Fails if key order matters, or a changed value does not."""
    assert hash_value({"a": 1, "b": [1, 2]}) == hash_value({"b": [1, 2], "a": 1})
    assert hash_value({"a": 1, "b": [1, 2]}) != hash_value({"a": 1, "b": [2, 1]})
