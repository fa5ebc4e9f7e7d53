"""Tables to Parquet bytes and back: fixed schemas, versions, bytes that only the data decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ralm_engine.errors import InputError, RunError
from ralm_engine.schema import RANKER_PREFIX, SCHEMA_VERSION, TABLES, VERSION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralm_engine.store.location import Location

FOOTER_PREFIX = "ralm_engine."
FOOTER_KEYS = ("config_hash", "code_revision", "model_hash", "tokenizer_hash", "seed")
"""Manifest entries that every footer repeats: values that are the same on every machine."""

EVERY_RANKER = RANKER_PREFIX + "*"
"""In a list of columns to read: all extra rankers of the file."""

# Repeated in nearly every line, so a dictionary shrinks them to bits; float lists only lose by one.
_DICTIONARY_COLUMNS = frozenset({"stream_id", "status", "retrieval_status", "worker"})


def conform(name: str, table: pa.Table) -> pa.Table:
    """Brings a table into the schema of its name.

    Columns are put in order and cast; absent nullable ones become null; `ranker_*` columns of
    `candidates` follow in the order of their names.

    Raises:
        RunError: a column is absent, unknown, of a type that does not fit, or null where it may
            not be.
    """
    schema = _schema_with_rankers(name, table.schema)
    unknown = sorted(set(table.column_names) - set(schema.names))
    if unknown:
        raise RunError(f'table "{name}" has unknown columns {", ".join(unknown)}')
    columns = [_conform_column(name, table, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema).combine_chunks()


def _schema_with_rankers(name: str, given: pa.Schema) -> pa.Schema:
    schema = TABLES[name]
    if name != "candidates":
        return schema
    for column in sorted(c for c in given.names if c.startswith(RANKER_PREFIX)):
        doc = {"doc": f"score of ranker {column.removeprefix(RANKER_PREFIX)}; higher is better"}
        schema = schema.append(pa.field(column, pa.float32(), metadata=doc))
    return schema


def _conform_column(name: str, table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        if not field.nullable:
            raise RunError(f'table "{name}" lacks the column "{field.name}"')
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    try:
        column = column.cast(field.type)
    except pa.ArrowException as error:
        raise RunError(f'column "{field.name}" of table "{name}": {error}') from error
    if column.null_count and not field.nullable:
        raise RunError(
            f'column "{field.name}" of table "{name}" holds {column.null_count} nulls, '
            f"which its schema does not allow"
        )
    return column


def encode(name: str, table: pa.Table, *, footer: Mapping[str, str]) -> pa.Buffer:
    """Parquet bytes of a table; the same data and footer give the same bytes.

    Args:
        name: a key of `schema.TABLES`.
        table: what `conform` accepts.
        footer: key-value pairs for the file footer, without times.

    Raises:
        RunError: the table does not fit its schema.
    """
    table = conform(name, table)
    extra = {f"{FOOTER_PREFIX}{key}": value for key, value in sorted(footer.items())}
    table = table.replace_schema_metadata({**extra, **table.schema.metadata})
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        version="2.6",
        compression="zstd",
        compression_level=3,
        use_dictionary=[c for c in table.column_names if c in _DICTIONARY_COLUMNS],
        write_statistics=True,
        store_schema=True,
    )
    return sink.getvalue()


def decode(
    name: str, data: pa.Buffer, *, label: str, columns: Sequence[str] | None = None
) -> pa.Table:
    """The table in a Parquet file of this schema version or the one before it.

    Args:
        name: a key of `schema.TABLES`.
        data: the bytes of the file.
        label: name of the file for messages.
        columns: read only these (EVERY_RANKER stands for all `ranker_*` columns); all when None.

    Raises:
        InputError: truncated, not ours, of another version, or without a needed column.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        stored = file.schema_arrow
        check_version(stored, label=label)
        schema = _schema_with_rankers(name, stored)
        wanted = schema.names if columns is None else _expanded(columns, stored)
        table = file.read(columns=[column for column in wanted if column in stored.names])
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{label} is no readable Parquet file: {error}",
            hint="run `ralm-engine verify` on the run for all damage",
        ) from error
    return _upgraded(table, schema, wanted, label=label)


def _expanded(columns: Sequence[str], stored: pa.Schema) -> list[str]:
    rankers = [name for name in stored.names if name.startswith(RANKER_PREFIX)]
    named = [name for name in columns if name != EVERY_RANKER]
    return [*named, *rankers] if EVERY_RANKER in columns else named


def check_version(stored: pa.Schema, *, label: str) -> int:
    """The schema version of a file.

    Raises:
        InputError: no version, a newer one, or one older than the previous.
    """
    text = (stored.metadata or {}).get(VERSION_KEY)
    if text is None:
        raise InputError(f"{label} carries no {VERSION_KEY.decode()}: no table of a run")
    version = int(text)
    if version > SCHEMA_VERSION:
        raise InputError(
            f"{label} has schema version {version}, this engine reads up to {SCHEMA_VERSION}",
            hint="update ralm-engine",
        )
    if version < SCHEMA_VERSION - 1:
        raise InputError(
            f"{label} has schema version {version}, this engine reads {SCHEMA_VERSION - 1} and "
            f"{SCHEMA_VERSION}",
            hint="read it with an older ralm-engine, or repeat the run",
        )
    return version


def _upgraded(table: pa.Table, schema: pa.Schema, wanted: Sequence[str], *, label: str) -> pa.Table:
    """Gives a table the columns of today: what the previous version lacked is null."""
    fields, columns = [], []
    for name in wanted:
        field = schema.field(name)
        if name in table.column_names:
            column = table.column(name)
            if column.type != field.type:
                try:
                    column = column.cast(field.type)
                except pa.ArrowException as error:
                    raise InputError(f'{label}: column "{name}": {error}') from error
        elif field.nullable:
            column = pa.chunked_array([pa.nulls(table.num_rows, field.type)])
        else:
            raise InputError(f'{label} lacks the column "{name}"')
        fields.append(field)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=schema.metadata))


def read_parquet(
    location: Location, name: str, *, columns: Sequence[str] | None = None
) -> pa.Table:
    """Reads one file; see `decode`.

    Raises:
        InputError: it does not exist or cannot be read.
    """
    try:
        data = location.read()
    except OSError as error:
        raise InputError(f"cannot read {location.label}: {error}") from error
    return decode(name, data, label=location.label, columns=columns)
