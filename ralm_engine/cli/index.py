"""`ralm-engine index`: builds, describes, searches and verifies passage indexes."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralm_engine.cli.options import Commands, Formatter, add_command, add_json, add_overrides
from ralm_engine.errors import InputError, RunError

if TYPE_CHECKING:
    from ralm_engine.config import JobConfig
    from ralm_engine.retrieval.protocol import Candidates

# Enough queries to keep every thread busy, few enough that the first answer comes at once.
QUERIES_PER_SEARCH = 1024

_BUILD_EXAMPLES = """\
  ralm-engine index build passages.jsonl.gz --out index/
  ralm-engine index build part-1.parquet part-2.parquet --out index/
  ralm-engine index build job.toml                what `score` would build
"""
_SEARCH_EXAMPLES = """\
  ralm-engine index search index/ --query "when was the tower built"
  ralm-engine index search index/ --queries queries.jsonl --k 16 --json
"""


def add(commands: Commands) -> None:
    """Adds the command and its verbs."""
    parser = commands.add_parser(
        "index",
        help="build, describe, search or verify a passage index",
        description="Builds, describes, searches and verifies passage indexes.",
        formatter_class=Formatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_build(verbs)
    _add_info(verbs)
    _add_search(verbs)
    _add_verify(verbs)


def _add_build(verbs: Commands) -> None:
    parser = add_command(
        verbs,
        "build",
        build,
        summary="build an index from passage files or a job file",
        description="Cuts documents into passages of at most 100 words and indexes them.",
        examples=_BUILD_EXAMPLES,
    )
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        nargs="+",
        help=".txt, .jsonl[.gz|.zst], .parquet, .tsv or hf:name/config:split; or one JOB.toml",
    )
    parser.add_argument("--out", metavar="INDEX", help="index directory (a job file names its own)")
    parser.add_argument(
        "--engine", choices=("native", "lucene"), default="native", help="default native"
    )
    add_json(parser, "the index header")
    add_overrides(parser)


def _add_info(verbs: Commands) -> None:
    parser = add_command(
        verbs,
        "info",
        info,
        summary="what an index holds",
        description="Prints the header of an index: engine, passages, analyzer, hashes, size.",
        examples="  ralm-engine index info index/\n",
    )
    parser.add_argument("directory", metavar="INDEX", type=Path, help="index directory")
    add_json(parser, "the header")


def _add_search(verbs: Commands) -> None:
    parser = add_command(
        verbs,
        "search",
        search,
        summary="search an index",
        description="Searches an index and prints passage rows and scores, best first.",
        examples=_SEARCH_EXAMPLES,
    )
    parser.add_argument("directory", metavar="INDEX", type=Path, help="index directory")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--query", metavar="TEXT", help="one query")
    asked.add_argument(
        "--queries", metavar="FILE.jsonl", type=Path, help='one JSON object a line, with "query"'
    )
    parser.add_argument("--k", type=int, default=16, help="passages a query (default 16)")
    parser.add_argument("--k1", type=float, default=0.9, help="BM25 k1 (default 0.9)")
    parser.add_argument("--b", type=float, default=0.4, help="BM25 b (default 0.4)")
    parser.add_argument("--threads", type=int, default=1, help="search threads (default 1)")
    add_json(parser, "one line a query, with passages and scores,")


def _add_verify(verbs: Commands) -> None:
    parser = add_command(
        verbs,
        "verify",
        verify,
        summary="check that an index is whole",
        description="Checks every file of an index against its checksum.",
        examples="  ralm-engine index verify index/ && echo whole\n",
    )
    parser.add_argument("directory", metavar="INDEX", type=Path, help="index directory")
    add_json(parser, "the problems found")


def build(args: argparse.Namespace) -> int:
    """Builds the index unless it is there already, and prints its header."""
    cfg = _build_config(args)
    from ralm_engine.cli.progress import stage_display
    from ralm_engine.jobs.index import ensure_index

    ensure_index(cfg.passages, cfg.retrieval, progress=stage_display(time.monotonic))
    return _show_header(Path(cfg.retrieval.index), as_json=args.json)


def info(args: argparse.Namespace) -> int:
    """Prints the header."""
    return _show_header(args.directory, as_json=args.json)


def search(args: argparse.Namespace) -> int:
    """Prints passage rows and scores of every query, in the order of the queries."""
    from ralm_engine.jobs.index import open_index

    queries = [args.query] if args.query is not None else read_queries(args.queries)
    if args.k < 1:
        raise InputError(f"--k {args.k} must be at least 1")
    index = open_index(args.directory, k1=args.k1, b=args.b, num_threads=args.threads)
    for begin in range(0, len(queries), QUERIES_PER_SEARCH):
        some = queries[begin : begin + QUERIES_PER_SEARCH]
        for query, hits in zip(some, _hits(index.search(some, args.k)), strict=True):
            _show_hits(query, hits, as_json=args.json)
    return 0


def verify(args: argparse.Namespace) -> int:
    """Prints each problem; exit code 4 where there is one."""
    from ralm_engine.cli.output import print_json
    from ralm_engine.jobs.index import verify_index

    problems = verify_index(args.directory)
    if args.json:
        print_json({"index": str(args.directory), "problems": problems})
    else:
        print("\n".join(problems) or f"{args.directory}: whole")
    return RunError.exit_code if problems else 0


def read_queries(path: Path) -> list[str]:
    """The `query` of every line.

    Raises:
        InputError: unreadable file, or a line without a query, with its number.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    return [
        _query(line, where=f"{path}:{number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _query(line: str, *, where: str) -> str:
    try:
        parsed = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON: {error.msg}") from error
    query = parsed.get("query") if isinstance(parsed, dict) else None
    if not isinstance(query, str):
        raise InputError(f'{where}: no string "query"', hint='write {"query": "..."} on each line')
    return query


def _build_config(args: argparse.Namespace) -> JobConfig:
    from ralm_engine.config import job_from_table, load_job

    if len(args.sources) == 1 and args.sources[0].endswith(".toml"):
        out = [f"retrieval.index={Path(args.out).absolute()}"] if args.out else []
        return load_job(args.sources[0], overrides=[*args.overrides, *out])
    if args.out is None:
        raise InputError("index build needs --out INDEX for passage files")
    # A job whose text and model nobody asks for: the index depends on passages and engine alone.
    table: dict[str, dict[str, Any]] = {
        "input": {"path": args.sources[0]},
        "model": {"name": "smollm2"},
        "passages": {"path": args.sources},
        "retrieval": {"engine": args.engine, "index": args.out},
    }
    return job_from_table(table, base=Path.cwd(), source="index build", overrides=args.overrides)


def _hits(found: Candidates) -> Iterator[dict[str, Sequence[float]]]:
    for row, count in enumerate(found.count_Q.tolist()):
        yield {
            "passages": found.passage_QK[row, :count].tolist(),
            "scores": found.score_QK[row, :count].tolist(),
        }


def _show_hits(query: str, hits: dict[str, Sequence[float]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(hits, allow_nan=False))
        return
    print(query)
    for passage, score in zip(hits["passages"], hits["scores"], strict=True):
        print(f"  {score:9.4f}  {passage}")
    if not hits["passages"]:
        print("  no hits")


def _show_header(directory: Path, *, as_json: bool) -> int:
    from ralm_engine.cli.output import print_json
    from ralm_engine.jobs.index import read_header

    header = read_header(directory)
    if as_json:
        print_json(header)
    else:
        width = max(map(len, header))
        for key, value in header.items():
            print(f"{key.replace('_', ' '):{width}}  {value}")
    return 0
