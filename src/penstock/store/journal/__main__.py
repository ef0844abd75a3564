"""The tool `python -m penstock.store.journal`: lists, dumps and verifies a journal, also while a broker has it open."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from penstock.model.errors import StoreError
from penstock.store.journal.inspect import IndexReport, Inspection, SegmentReport, as_dict, is_torn

OK, DAMAGED, USAGE = 0, 1, 2

DESCRIPTION = """\
Looks at the files of a journal. Nothing is locked or changed, so it may run beside the broker.

  ls      one line for each segment and index: positions, records, bytes
  dump    the records as JSON lines; bodies as text when they are UTF-8, else as lists of byte values
  verify  checks every checksum, and tells the file and offset of what does not match
"""
EPILOG = """\
examples:
  python -m penstock.store.journal ls penstock-data
  python -m penstock.store.journal dump penstock-data --first 1000 --last 1100 | jq .kind
  python -m penstock.store.journal verify penstock-data --json

exit codes: 0 all is well, 1 something is damaged, 2 wrong usage or nothing there to look at
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python -m penstock.store.journal",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = result.add_subparsers(dest="command", required=True, metavar="ls|dump|verify")
    for name, text in (("ls", "list segments and indexes"), ("verify", "check every checksum")):
        command = commands.add_parser(name, help=text)
        command.add_argument("directory", metavar="DIR", help="the broker's data directory (its --data)")
        command.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    dump = commands.add_parser("dump", help="print records as JSON lines")
    dump.add_argument("directory", metavar="DIR", help="the broker's data directory (its --data)")
    dump.add_argument("--first", type=int, default=0, metavar="POSITION", help="begin here (default: the oldest)")
    dump.add_argument("--last", type=int, metavar="POSITION", help="end here, included (default: the newest)")
    return result


def main(arguments: Sequence[str] | None = None, out: TextIO | None = None) -> int:
    """Run the tool; return its exit code."""
    options = parser().parse_args(arguments)
    out = out or sys.stdout
    inspection = Inspection(options.directory)
    try:
        if options.command == "dump":
            return _dump(inspection, options.first, options.last, out)
        return _list(inspection, out, as_json=options.json, verify=options.command == "verify")
    except StoreError as error:
        print(error.message, file=sys.stderr)  # noqa: T201
        return USAGE
    except BrokenPipeError:
        sys.stderr.close()  # Whoever read has enough, as `head` does.
        return OK


def _dump(inspection: Inspection, first: int, last: int | None, out: TextIO) -> int:
    out.writelines(
        json.dumps(record, default=_plain, ensure_ascii=False) + "\n" for record in inspection.records(first, last)
    )
    return OK


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return list(value)
    raise TypeError(f"{type(value).__name__} cannot be shown as JSON")


def _list(inspection: Inspection, out: TextIO, *, as_json: bool, verify: bool) -> int:
    segments, indexes = list(inspection.segments()), list(inspection.indexes())
    everything: list[SegmentReport | IndexReport] = [*segments, *indexes]
    damaged = [one for one in everything if one.fault and not is_torn(one)]
    if as_json:
        shown = {"segments": list(map(as_dict, segments)), "indexes": list(map(as_dict, indexes)), "ok": not damaged}
        out.write(json.dumps(shown, indent=1) + "\n")
    elif verify:
        for one in everything:
            at = f" at offset {one.offset}" if isinstance(one, SegmentReport) and one.fault else ""
            out.write(f"{one.fault or 'ok'}{at}: {one.file}\n")
        out.write(f"segments: {len(segments)}, indexes: {len(indexes)}, damaged: {len(damaged)}\n")
    else:
        heads = ("state", "first", "last", "batches", "records", "messages", "bytes", "file")
        out.write(table(heads, [[getattr(one, head) for head in heads] for one in segments]))
        out.write(table(("position", "bytes", "file"), [[one.position, one.bytes, one.file] for one in indexes]))
        out.writelines(f"{one.fault}: {one.file}\n" for one in everything if one.fault)
    return DAMAGED if damaged else OK


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table: numbers to the right, texts to the left."""
    cells = [list(heads), *([f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    texts = {index for index, head in enumerate(heads) if head in {"state", "file"}}
    lines = (
        "  ".join(
            cell.ljust(width) if index in texts else cell.rjust(width) for index, (cell, width) in enumerate(pairs)
        )
        for pairs in (list(zip(row, widths, strict=True)) for row in cells)
    )
    return "".join(line.rstrip() + "\n" for line in lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
