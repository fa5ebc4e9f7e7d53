"""Starts, asks, restarts and ends the process that holds the JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ralm_engine.errors import RunError
from ralm_engine.retrieval.java import find_anserini, find_java_home

_WORKER = Path(__file__).with_name("lucene_worker.py")
_SHOWN_LINES = 5
# Java logs at start and frames of tracebacks say nothing about a crash.
_NOISE = ("WARNING: ", "INFO", "lookupProvider", 'File "', "Traceback ")


class WorkerCrashError(RunError):
    """The JVM process ended without a reply."""


class LuceneProcess:
    """One worker process. Safe to use from several threads, one request at a time.

    A process forked from the one that made this gets a worker of its own at its first request.

    Args:
        heap_mb: limit of the JVM's heap, MB.
        prepare: called with this object whenever a worker was started, to bring it into its state.
    """

    def __init__(
        self, *, heap_mb: int, prepare: Callable[[LuceneProcess], None] | None = None
    ) -> None:
        self._heap_mb = heap_mb
        self._prepare = prepare
        self._lock = threading.RLock()
        self._owner = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._finalizer: weakref.finalize[..., LuceneProcess] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None while there is none."""
        return self._process.pid if self._process is not None else None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sends one request and waits for its reply.

        Raises:
            RunError: Java refused the request.
            WorkerCrashError: the worker died; its last lines are in the message.
        """
        with self._lock:
            self._ensure_started()
            reply = self._exchange(request)
        if "error" in reply:
            raise RunError(f"Lucene: {reply['error']}")
        return reply

    def ask_again(self, request: dict[str, Any]) -> dict[str, Any]:
        """As `ask`, for requests that may be repeated: tries once more with a fresh worker."""
        try:
            return self.ask(request)
        except WorkerCrashError:
            return self.ask(request)

    def close(self) -> None:
        """Ends the worker."""
        with self._lock:
            if self._finalizer is not None and self._owner == os.getpid():
                self._finalizer()
            self._process = None

    def _ensure_started(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            return
        self._start()
        if self._prepare is None:
            return
        try:
            self._prepare(self)
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        jar = find_anserini()
        environment = dict(os.environ)
        environment["JAVA_HOME"] = str(find_java_home())
        # pyserini 1.6 builds an OpenAI client in some of its modules, which insists on a key.
        environment.setdefault("OPENAI_API_KEY", "unused")
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        # -P keeps this folder's module names out of the worker's path; its own session keeps
        # Ctrl-C in the terminal from reaching the JVM before we end it.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            start_new_session=True,
        )
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(self, _end, self._process, self._stderr, self._owner)
        self._exchange({"jar": str(jar), "heap_mb": self._heap_mb})

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        body = json.dumps(request).encode("ascii")
        try:
            process.stdin.write(len(body).to_bytes(8, "little") + body)
            process.stdin.flush()
            size = int.from_bytes(_read_exactly(process.stdout, 8), "little")
            reply: dict[str, Any] = json.loads(_read_exactly(process.stdout, size))
        except (EOFError, BrokenPipeError) as error:
            raise self._crashed(process) from error
        except BaseException:
            # An interrupted exchange leaves half a reply in the pipe: this worker is lost.
            self.close()
            raise
        return reply

    def _crashed(self, process: subprocess.Popen[bytes]) -> WorkerCrashError:
        code = process.wait()
        lines = _last_lines(self._stderr) if self._stderr is not None else []
        self.close()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        said = " | ".join(lines) or "it said nothing"
        return WorkerCrashError(f"the Lucene process {how}: {said}")


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _last_lines(stderr: IO[bytes]) -> list[str]:
    stderr.seek(0, os.SEEK_END)
    stderr.seek(max(stderr.tell() - 8192, 0))
    lines = [line.strip() for line in stderr.read().decode("utf-8", "replace").splitlines()]
    kept = [line for line in lines if line.strip("^~ ") and not any(n in line for n in _NOISE)]
    return kept[-_SHOWN_LINES:]


def _end(process: subprocess.Popen[bytes], stderr: IO[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except BrokenPipeError:
                continue
    process.kill()
    process.wait()
    stderr.close()
