"""A file is there whole or as it was before, whatever fails on the way."""

from __future__ import annotations

import errno
import os

import pytest

from ralm_engine.store.atomic import is_temporary, temporary_name, write_file_atomically


def test_a_file_is_replaced_whole(tmp_path):
    """Fails if bytes are lost, an old tail stays, or a temporary file is left."""
    file = tmp_path / "x"
    file.write_bytes(b"old and long")
    write_file_atomically(file, b"new")
    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_failure_at_any_step_leaves_the_old_file(tmp_path, monkeypatch, call):
    """Fails if a full disk, a failed flush or a failed rename damages what was there."""
    file = tmp_path / "x"
    file.write_bytes(b"old")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    if call == "rename":
        monkeypatch.setattr(type(file), "replace", fail)
    else:
        monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        write_file_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Fails if a power cut after the rename could leave an empty file under the final name."""
    events = []
    real_fsync, file = os.fsync, tmp_path / "x"

    def fsync(descriptor):
        events.append("directory" if os.fstat(descriptor).st_mode & 0o040000 else "file")
        events.append(file.exists())
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_file_atomically(file, b"new")
    assert events == ["file", False, "directory", True]


def test_a_short_write_goes_on(tmp_path, monkeypatch):
    """Fails if a system call that writes less than it was given truncates the file."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, view: real(descriptor, view[:3]))
    write_file_atomically(tmp_path / "x", b"0123456789")
    assert (tmp_path / "x").read_bytes() == b"0123456789"


def test_temporary_names_are_hidden_and_recognised():
    """Fails if readers of *.parquet could pick one up, or a crash's leftovers are not found."""
    name = temporary_name("part-00000.parquet")
    assert name.startswith(".")
    assert not name.endswith(".parquet")
    assert is_temporary(name)
    assert not is_temporary("part-00000.parquet")
    assert name != temporary_name("part-00000.parquet")
