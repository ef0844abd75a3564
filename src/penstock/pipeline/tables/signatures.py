"""Signatures of failures: reasons and telling headers, with all that differs from one message to the next folded away."""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

NO_REASON = "(no reason given)"
#: Headers that tell of a failure, by the names that programs commonly give them; upper and lower case are the same.
#: Those that tell what a message is rather than what went wrong, such as content-type, are for people to choose.
FAILURE_HEADERS = ("exception", "exception-type", "error", "error-type", "error-code")
#: Longer reasons, such as stack traces, differ in their first characters if they differ at all.
_LENGTH_MAX = 300
_HEX = "[0-9a-fA-F]"

#: What is folded and what stands in its place, in this order: an id is told before the numbers in it are.
FOLDS = (
    (rf"\b{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}\b", "<uuid>"),
    (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", "<time>"),
    (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
    # An apostrophe inside a word is no quotation mark.
    (r"(?<!\w)'[^'\n]*'(?!\w)", "<value>"),
    (r'"[^"\n]*"', "<value>"),
    (rf"\b0[xX]{_HEX}+\b", "<hex>"),
    # Hex has digits and letters both; a word that happens to consist of a to f stays one.
    (rf"\b(?=[a-fA-F]*\d)(?=\d*[a-fA-F]){_HEX}{{8,}}\b", "<hex>"),
    (r"(?<![\w<])[+-]?\d+(?:[.,]\d+)*(?![\w>])", "<number>"),
    # Numbers that are part of a word, such as worker-7 and order17.
    (r"\d+", "<number>"),
    (r"\s+", " "),
)


def signature_of(reason: Column, headers: Column, names: Sequence[str] = FAILURE_HEADERS) -> Column:
    """Return the signature of a reason, and of the headers of these names that a message has.

    Where there is no reason, one that an earlier death left in the headers stands in.
    """
    stated = F.coalesce(_stated(reason), _stated(headers["death-reason"]))
    told = [F.concat(F.lit(f"{name}: "), _stated(_header(headers, name))) for name in names]
    parts = F.transform(F.array_compact(F.array(stated, *told)), _folded)
    return F.when(F.size(parts) > 0, F.array_join(parts, "; ")).otherwise(NO_REASON)


def _folded(text: Column) -> Column:
    for pattern, name in FOLDS:
        text = F.regexp_replace(text, pattern, name)
    return F.substring(F.trim(text), 1, _LENGTH_MAX)


def _header(headers: Column, name: str) -> Column:
    wanted = F.lit(name.lower())
    return F.get(F.filter(F.map_entries(headers), lambda one: F.lower(one["key"]) == wanted), 0)["value"]


def _stated(text: Column) -> Column:
    return F.when(F.trim(text) != "", text)
