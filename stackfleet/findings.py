# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The queries for findings, in SQL: equal findings on several hosts are one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from winstacks.columns.words import CONFIDENCES, SEVERITIES

from .layout import FINDINGS
from .questions import Question
from .sqltext import chosen, one_of, some

_WORST = f"list_position({list(SEVERITIES)}, Severity)"
_SUREST = f"list_position({list(CONFIDENCES)}, Confidence)"


def _every(where: str) -> str:
    """Returns the part of a query with all findings. Equal findings on several hosts have equal Same.

    Findings without a stack key are equal if check, symbol and process name are.
    """
    return f"""\
every AS (
    SELECT *, regexp_replace(Symbol, '[+]0x[0-9a-f]+$', '') AS Function,
           coalesce(StackKey, concat_ws(' ', Process, Function)) AS Same
    FROM findings JOIN hosts USING (ImageId)
    WHERE {where}
)"""


def found(limit: int, places: int, images: int) -> Question:
    """Returns the findings in all images, one row for equal findings on several hosts.

    The rows have the order of `findings`. Places holds findings of the row, the worst first. `left_out`
    counts rows.

    Args:
        places: number of findings listed in a row
        images: number of ImageIds listed in a row
    """
    names = (
        *("Severity", "Confidence", "Finding", "ImageId", "PID", "Process", "TID", "Kind", "Frame"),
        *("Address", "Symbol", "Evidence", "Innocent", "Technique", "TraceId", "Status"),
    )
    place = ", ".join(f"{name} := {name}" for name in names)
    every = f"WITH {_every('Severity IS NOT NULL')}"
    sql = f"""\
{every}
SELECT Finding, count(DISTINCT Host) AS Hosts, count(*) AS Number,
       list_sort(list(DISTINCT ImageId))[1:{images}] AS ImageIds,
       min({_WORST}) AS Rank, min({_SUREST}) AS Sure,
       list(struct_pack({place})
            ORDER BY {_WORST}, {_SUREST}, Host, ImageId, PID, TID, every.Address)[1:{places}] AS Places
FROM every
GROUP BY Finding, Same
ORDER BY Rank, Hosts, Sure, Finding, Same
LIMIT {limit}"""
    return Question(sql, FINDINGS, f"{every} SELECT count(*) FROM (SELECT DISTINCT Finding, Same FROM every)")


_FIRST = "Rank, Sure, Host, ImageId, PID, TID, Address"
"""The order of equal findings."""

_OF_HOST = """\
Severity, Confidence, Finding, Hosts, Host, File, PID, Process, TID, Kind, Frame,
       Address, Symbol, How, Evidence, Innocent, "Group", Next, Technique, StackKey, TraceId,
       ImageId, Status"""


def findings(
    severity: str,
    unchecked: bool,
    checks: Optional[Sequence[str]] = None,
    image_ids: Optional[Sequence[str]] = None,
    per_image: bool = False,
) -> Question:
    """Returns the findings in all images: the worst first; on a tie, those on the fewest hosts.

    Equal findings on several hosts are one row. Hosts counts all hosts of the lake with the finding, also
    those that `image_ids` leaves out.

    Args:
        severity: the least severity
        unchecked: whether checks that could not run are listed, at the end
        checks: names of checks; None for all
        image_ids: images whose findings are listed; None for all
        per_image: whether each finding of each image is a row
    """
    severities = SEVERITIES[: SEVERITIES.index(severity) + 1]
    of_checks, of_images = chosen("Finding", checks), chosen("ImageId", image_ids)
    where = one_of("Severity", severities) + (" OR Severity IS NULL" if unchecked else "")
    shown = f"""\
WITH {_every(f"({where}) AND {of_checks}")}, spread AS (
    SELECT Finding, Same, count(DISTINCT Host) AS Hosts FROM every GROUP BY ALL
), shown AS (
    SELECT every.*, Hosts, File, {_WORST} AS Rank, {_SUREST} AS Sure
    FROM every JOIN spread USING (Finding, Same)
         LEFT JOIN (SELECT image_id AS ImageId, parse_filename(path) AS File FROM manifests) USING (ImageId)
    WHERE {of_images}
)"""
    if per_image:
        order = "Rank NULLS LAST, Hosts, Sure, Finding, Host, ImageId, PID, TID, shown.Address"
        sql = f"{shown}\nSELECT {_OF_HOST}\nFROM shown\nORDER BY {order}"
    else:
        sql = f"""\
{shown}
SELECT {_first("Severity")}, {_first("Confidence")}, Finding, Hosts, {some("HostText")} AS Hostnames,
       {some("File")} AS Files, count(*) AS Number, {some("Process")} AS Processes,
       {some("Kind")} AS Kinds, {_first("Symbol")},
       {some("Address")} AS Addresses,
       {_first("Evidence")}, {_first("Innocent")}, {_first("Technique")}, any_value(StackKey) AS StackKey,
       {some("ImageId")} AS ImageIds
FROM shown
GROUP BY Finding, Same, Hosts
ORDER BY min(Rank) NULLS LAST, Hosts, min(Sure), Finding, Same"""
    if unchecked:
        return Question(sql, FINDINGS, images=image_ids)
    note = "Checks that could not run on an image: {} (--unchecked lists them)"
    left_out = f"SELECT count(*) FROM findings WHERE Severity IS NULL AND {of_checks} AND {of_images}"
    return Question(sql, FINDINGS, left_out, note, images=image_ids)


def _first(column: str) -> str:
    """Returns the selection of a column of the worst of equal findings."""
    return f"first({column} ORDER BY {_FIRST}) AS {column}"
