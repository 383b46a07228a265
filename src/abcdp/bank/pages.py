"""What a Parquet file says of itself, checked before any of it is unpacked.

A footer and the headers of pages state how many bytes each page becomes, and the library that reads them allocates what
they state. Here all of them are held against what the file has to be: pages of plain numbers, as many as rows and
columns make, with nothing before, between or behind them that has to be unpacked to be understood. Pages are packed
with zstd, which stops at the stated size, so that is what a file can take.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, NamedTuple

_MAGIC = b"PAR1"
_FOOTER = 64 << 10  # bytes of a footer, and for each group of rows:
_GROUP = 4 << 10
_GROUP_ROWS = 1 << 20  # rows of a group, where the writer makes several
_ROOM = 256  # bytes of a page beside its values, and a byte for each of these
_DATA, _RLE = 0, 3  # of a page, and of the levels that say where lists begin
_ENCODINGS = {"PLAIN": 0, "BYTE_STREAM_SPLIT": 9}
_LONGEST_TEXT = 1 << 10  # of a page's statistics
_I32, _I64, _BINARY, _STRUCT = 5, 6, 8, 12  # Thrift's compact types; 1 and 2 are true and false
_PLAIN_TYPES = {"INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}


class FooterError(ValueError):
    """A file is not what the writer of shards makes."""


class Column(NamedTuple):
    """A column as it has to be: numbers in each row, of which type, written how."""

    path: str
    type: str
    encoding: str
    wide: int


def check_footer(file: BinaryIO, rows: int) -> None:
    """Raise unless the footer is no longer than that of so many rows: what it becomes is many times as large."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    end = file.read(8)
    file.seek(0)
    if len(end) < 8 or end[4:] != _MAGIC:
        raise FooterError("cannot be read; the file is cut or damaged (no Parquet file ends like this)")
    length = struct.unpack("<I", end[:4])[0]
    if length > min(size, _FOOTER + _GROUP * (rows // _GROUP_ROWS)):
        raise FooterError(f"its footer of {length} bytes is too long")


def check_pages(metadata: Any, content: bytes, columns: list[Column], rows: int) -> None:
    """Raise unless all pages that the footer leads to hold these columns of so many rows, and nothing else."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for found in (metadata.num_rows, sum(group.num_rows for group in groups)):
        if found != rows:
            raise FooterError(f"{found} rows where the manifest says {rows}")
    for group in groups:
        if group.num_columns != len(columns) or group.num_rows < 1:
            raise FooterError("a group of rows without rows, or with other columns")
        for place, column in enumerate(columns):
            _check_chunk(group.column(place), content, column, group.num_rows * column.wide)


def _check_chunk(chunk: Any, content: bytes, column: Column, values: int) -> None:
    sound = (
        (chunk.path_in_schema, chunk.physical_type, chunk.compression) == (column.path, column.type, "ZSTD")
        and not chunk.has_dictionary_page
        and chunk.num_values == values
        and 0 < chunk.data_page_offset <= chunk.data_page_offset + chunk.total_compressed_size <= len(content)
    )
    if not sound:
        raise FooterError(f"its column {column.path} is not written as a bank's")
    place, end = chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size
    while values > 0:
        header = _Header(content, place, end)
        if header.kind != _DATA or header.encodings != (_ENCODINGS[column.encoding], _RLE, _RLE):
            raise FooterError("a page of another kind than this writer makes")
        if not 1 <= header.values <= values:
            raise FooterError("a page with another number of values than there are")
        if not 0 <= header.unpacked <= _ROOM + header.values * (_PLAIN_TYPES[column.type] + 1):
            raise FooterError(f"a page of {header.values} values that would take {header.unpacked} bytes")
        if not 0 <= header.packed <= end - header.end:
            raise FooterError("a page that ends beyond its column")
        place = header.end + header.packed
        values -= header.values


class _Header:
    """The header of a page, read as strictly as it is written: a field that is not expected is an error."""

    def __init__(self, content: bytes, place: int, end: int) -> None:
        self._content, self._place, self._stop = content, place, end
        fields = self._fields({1: _I32, 2: _I32, 3: _I32, 4: _I32, 5: _STRUCT})
        try:
            self.kind, self.unpacked, self.packed = fields[1], fields[2], fields[3]
            self.values, *encodings = (fields[5][number] for number in (1, 2, 3, 4))
        except KeyError:
            raise FooterError("a page whose header is incomplete") from None
        self.encodings = tuple(encodings)
        self.end = self._place

    def _fields(self, known: dict[int, int], inner: bool = False) -> dict[int, Any]:
        """Return the fields of a struct; those of a page may hold that of its data, and this its statistics."""
        out: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind = head & 15
            if head >> 4 == 0:
                raise FooterError("a page whose header is not as it is written")
            number += head >> 4
            if known.get(number) != (1 if kind == 2 else kind) or number in out:
                raise FooterError("a page whose header has unknown fields")
            if kind == _STRUCT:
                out[number] = self._statistics() if inner else self._fields(_DATA_PAGE, inner=True)
            elif kind in (_I32, _I64):
                out[number] = self._number(4 if kind == _I32 else 8)
            elif kind == _BINARY:
                out[number] = self._text()
            else:
                out[number] = kind == 1
        return out

    def _statistics(self) -> dict[int, Any]:
        return self._fields(_STATISTICS, inner=True)

    def _text(self) -> int:
        """Return where a text begins, and go on behind it."""
        length = self._varint()
        if length > _LONGEST_TEXT:
            raise FooterError("a page whose header is too long")
        self._place += length
        return self._place - length

    def _number(self, size: int) -> int:
        value = self._varint()
        if value >= 1 << 8 * size:  # which another reader would cut to fit
            raise FooterError("a page whose header has too large a number")
        return value >> 1 if value & 1 == 0 else -(value >> 1) - 1

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise FooterError("a page whose header has a number without an end")

    def _byte(self) -> int:
        if self._place >= self._stop:
            raise FooterError("a page whose header is cut")
        self._place += 1
        return self._content[self._place - 1]


_DATA_PAGE = {1: _I32, 2: _I32, 3: _I32, 4: _I32, 5: _STRUCT}
# largest and smallest value (old and new), nulls and distinct values, whether largest and smallest are exact
_STATISTICS = {1: _BINARY, 2: _BINARY, 3: _I64, 4: _I64, 5: _BINARY, 6: _BINARY, 7: 1, 8: 1, 9: _I64}
