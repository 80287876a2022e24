# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is asked of a lake, in SQL: what is rare, what differs, what was found, what became of images."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from winstacks.columns.words import CONFIDENCES, EXACT, SEVERITIES

from .catalogue import quoted
from .database import one_of

KEYS = ("StackKey", "ShapeKey")
CRASH_KEYS = ("Driver", "BugCheck")
"""What crashes are told apart by, besides their stacks."""
LEAST_HOSTS = 5
"""With fewer hosts that have the same versions of modules, nothing can be said to be rare among them."""

SURE = f"KeyQuality = {quoted(EXACT)} AND NOT Incomplete"
"""The stacks whose keys can be compared."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A query, and one for what it leaves out.

    Attributes:
        sql: the query
        left_out: a query for a number; empty if nothing is left out
        said: what is said of that number, with {} for it
    """

    sql: str
    left_out: str = ""
    said: str = ""


def rare(by: str, kinds: Sequence[str], max_hosts: int, limit: int, images: int, partial: bool) -> Question:
    """Returns the stacks that few hosts have, the rarest first.

    How rare a stack is says the share of hosts that have it among those that have the same versions of all
    its modules. Where these are fewer than LEAST_HOSTS the share says nothing: such stacks come last.

    Args:
        by: of KEYS
        kinds: of the stacks; all when empty
        max_hosts: on how many hosts a stack is at most
        limit: how many rows; 0 for all
        images: how many images the lake has
        partial: whether stacks count whose keys are not exact
    """
    asked = f"{by} IS NOT NULL" + (f" AND {one_of('Kind', kinds)}" if kinds else "")
    where = asked if partial else f"{asked} AND {SURE}"
    if by == "StackKey":
        # All that have the same key have the same modules.
        sets, of_shapes, of_keys, together = "few", "", "", "few LEFT JOIN of_set USING (ModuleSet)"
    else:
        sets, together = "sets", "few LEFT JOIN of_key USING (Key)"
        of_shapes = f"""
), sets AS (
    SELECT DISTINCT {by} AS Key, ModuleSet FROM traces SEMI JOIN few ON Key = {by} WHERE {where}"""
        of_keys = """
), of_key AS (
    SELECT Key, bit_count(bit_or(Bits)) AS Among
    FROM sets JOIN of_set USING (ModuleSet)
    GROUP BY Key"""
    # Of those that are equally rare, stacks through code in no file come first.
    order = "Comparable DESC, Hosts / Among, Outside DESC, Among DESC, Key"
    sql = f"""\
WITH few AS (
    SELECT Key, count(*) AS Hosts, min(ModuleSet) AS ModuleSet, bool_or(Outside) AS Outside
    FROM (SELECT {by} AS Key, HostNumber, min(ModuleSet) AS ModuleSet, max(Unbacked) > 0 AS Outside
          FROM traces JOIN hosts USING (ImageId) WHERE {where} GROUP BY {by}, HostNumber)
    GROUP BY Key
    HAVING count(*) <= {max_hosts}{of_shapes}
), versions AS (
    SELECT Version, bitstring_agg(HostNumber, 1, {max(images, 1)}) AS Bits
    FROM modules JOIN hosts USING (ImageId)
    GROUP BY Version
), of_set AS (
    SELECT ModuleSet, bit_and(Bits) AS Bits, bit_count(bit_and(Bits)) AS Among
    FROM (SELECT ModuleSet, unnest(any_value(Versions)) AS Version
          FROM modulesets SEMI JOIN {sets} USING (ModuleSet) GROUP BY ModuleSet)
    JOIN versions USING (Version)
    GROUP BY ModuleSet{of_keys}
), ranked AS (
    SELECT Key, Hosts, Outside, coalesce(Among, (SELECT max(HostNumber) FROM hosts)) AS Among,
           coalesce(Among, (SELECT max(HostNumber) FROM hosts)) >= {LEAST_HOSTS} AS Comparable
    FROM {together}
    ORDER BY {order}{f" LIMIT {limit}" if limit else ""}
)
SELECT Key AS {by}, Hosts, Among, Comparable, list_sort(list(DISTINCT Host)) AS Hostnames,
       list_sort(list(DISTINCT Kind)) AS Kinds, list_sort(list(DISTINCT Process))[1:8] AS Processes,
       sum(Count)::BIGINT AS Count, max(Unbacked) AS Unbacked, min(Stack) AS Stack,
       list_sort(list(DISTINCT ImageId))[1:8] AS ImageIds
FROM ranked JOIN traces ON {by} = Key JOIN hosts USING (ImageId)
WHERE {where}
GROUP BY Key, Hosts, Among, Comparable, Outside
ORDER BY {order}"""
    if partial:
        return Question(sql)
    return Question(sql, _left_out(asked), _SAID)


_CRASHES = """\
crashes AS (
    SELECT ImageId, Host, BugCheckCode, BugCheck, BugCheckParameters
    FROM image JOIN hosts USING (ImageId) WHERE BugCheckCode IS NOT NULL
)"""
_HOSTS_OF = (
    "list_sort(list(DISTINCT Host))[1:8] AS Hostnames, list_sort(list(DISTINCT ImageId))[1:8] AS ImageIds"
)
_NAMED = "format('{:#x} {}', BugCheckCode, coalesce(BugCheck, ''))"


def rare_of_crashes(by: str, max_hosts: int, limit: int) -> Question:
    """Returns the bug checks of few hosts, or the drivers that are in the stacks of the crashes of few hosts.

    A driver of another version is another driver. A frame in no module stands for what is there instead:
    `<no-module>`, or a driver that was unloaded.

    Args:
        by: of CRASH_KEYS
        max_hosts: how many hosts have it at most
        limit: how many rows; 0 for all
    """
    among = "(SELECT count(DISTINCT Host) FROM crashes) AS Among"
    most = f" LIMIT {limit}" if limit else ""
    if by == "BugCheck":
        return Question(
            f"""\
WITH {_CRASHES}
SELECT {_NAMED} AS BugCheck, count(DISTINCT Host) AS Hosts, {among}, count(*) AS Crashes,
       list_sort(list(DISTINCT BugCheckParameters))[1:8] AS BugCheckParameters, {_HOSTS_OF}
FROM crashes
GROUP BY BugCheckCode, BugCheck
HAVING count(DISTINCT Host) <= {max_hosts}
ORDER BY Hosts, BugCheckCode{most}"""
        )
    return Question(
        f"""\
WITH {_CRASHES}, met AS (
    SELECT ImageId, coalesce(lower(Module), regexp_extract(Symbol, '^<[^>]*>')) AS Driver, ModuleStamp,
           ModuleSize, Frame, How
    FROM frames SEMI JOIN (SELECT ImageId, TraceId FROM traces WHERE Kind = 'kernel') USING (ImageId, TraceId)
)
SELECT Driver, ModuleStamp, ModuleSize, count(DISTINCT Host) AS Hosts, {among},
       count(DISTINCT ImageId) AS Crashes, min(Frame) AS Frame, bool_and(How = 'scan') AS Guessed,
       list_sort(list(DISTINCT {_NAMED}))[1:8] AS BugChecks, {_HOSTS_OF}
FROM met JOIN crashes USING (ImageId)
WHERE Driver <> ''
GROUP BY Driver, ModuleStamp, ModuleSize
HAVING count(DISTINCT Host) <= {max_hosts}
ORDER BY Hosts, Guessed, Frame, Driver, ModuleStamp{most}"""
    )


_SAID = "{} stacks are left out: their keys are not exact, or they are incomplete (--partial adds them)"


def _left_out(asked: str) -> str:
    return f"SELECT count(*) FROM traces WHERE {asked} AND NOT ({SURE})"


def diff(
    first: Sequence[str], second: Sequence[str], by: str, kinds: Sequence[str], partial: bool
) -> Question:
    """Returns in what the stacks of two groups of images differ.

    A stack of a process is one with the same kind, name of the process, bitness and key. Counts are compared
    where both groups are one image: groups of other sizes have other counts.

    Args:
        first: ImageIds of one group
        second: ImageIds of the other
        by: of KEYS
        kinds: of the stacks; all when empty
        partial: whether stacks count whose keys are not exact
    """
    asked = f"{by} IS NOT NULL" + (f" AND {one_of('Kind', kinds)}" if kinds else "")
    where = asked if partial else f"{asked} AND {SURE}"
    counted = "a.Count IS DISTINCT FROM b.Count" if len(first) == len(second) == 1 else "false"

    def side(ids: Sequence[str]) -> str:
        return f"""\
    SELECT Kind, Process, Arch, {by} AS Key, sum(Count)::BIGINT AS Count, count(DISTINCT ImageId) AS Images,
           max(Unbacked) AS Unbacked, min(Stack) AS Stack
    FROM traces WHERE {one_of("ImageId", ids)} AND {where}
    GROUP BY ALL"""

    sql = f"""\
WITH a AS (
{side(first)}
), b AS (
{side(second)}
)
SELECT CASE WHEN a.Key IS NULL THEN 'new' WHEN b.Key IS NULL THEN 'gone' ELSE 'changed' END AS Change,
       Kind, Process, Arch, Key AS {by}, a.Images AS ImagesBefore, b.Images AS ImagesAfter,
       a.Count AS CountBefore, b.Count AS CountAfter, coalesce(b.Unbacked, a.Unbacked) AS Unbacked,
       coalesce(b.Stack, a.Stack) AS Stack
FROM a FULL JOIN b USING (Kind, Process, Arch, Key)
WHERE a.Key IS NULL OR b.Key IS NULL OR {counted}
ORDER BY Change DESC, Unbacked DESC, Kind, Process, Arch, Key"""
    both = one_of("ImageId", dict.fromkeys((*first, *second)))
    return Question(sql) if partial else Question(sql, _left_out(f"{asked} AND {both}"), _SAID)


def selected(selector: str) -> str:
    """Returns the query for the ImageIds that a selector names.

    Args:
        selector: an ImageId or its beginning, a host, the path or name of a file, or case=NAME
    """
    if selector.startswith("case="):
        case = quoted(selector[len("case=") :])
        return f"SELECT image_id FROM manifests WHERE status = 'done' AND \"case\" = {case} ORDER BY image_id"
    text = quoted(selector)
    return f"""\
SELECT image_id FROM manifests LEFT JOIN hosts ON ImageId = image_id
WHERE status = 'done' AND (starts_with(image_id, {text}) OR Host = upper({text}) OR path = {text}
      OR parse_filename(path) = {text})
ORDER BY image_id"""


_WORST = f"list_position({list(SEVERITIES)}, Severity)"
_SUREST = f"list_position({list(CONFIDENCES)}, Confidence)"


def _every(where: str) -> str:
    """Returns the part of a query that has all findings. Those that are one on several hosts are the Same.

    Without a key of a stack these are what the same check found of the same symbol in processes of one name.
    """
    return f"""\
every AS (
    SELECT *, regexp_replace(Symbol, '[+]0x[0-9a-f]+$', '') AS Function,
           coalesce(StackKey, concat_ws(' ', Process, Function)) AS Same
    FROM findings JOIN hosts USING (ImageId)
    WHERE {where}
)"""


def found(limit: int, places: int, images: int) -> Question:
    """Returns what was found in all images, a row for what is the same on several hosts.

    The order is that of `findings`. Places has findings of the row, the worst first. `left_out` counts rows.

    Args:
        limit: how many rows
        places: how many findings a row has
        images: how many ImageIds a row has
    """
    named = (
        "Severity",
        "Confidence",
        "Finding",
        "ImageId",
        "PID",
        "Process",
        "TID",
        "Kind",
        "Frame",
        "Symbol",
    )
    names = (*named, "Evidence", "Innocent", "Technique", "TraceId", "Status")
    place = ", ".join(f"{name} := {name}" for name in names)
    every = f"WITH {_every('Severity IS NOT NULL')}"
    sql = f"""\
{every}
SELECT Finding, count(DISTINCT Host) AS Hosts, count(*) AS Number,
       list_sort(list(DISTINCT ImageId))[1:{images}] AS ImageIds,
       min({_WORST}) AS Rank, min({_SUREST}) AS Sure,
       list(struct_pack({place}, Address := format('{{:#x}}', Address))
            ORDER BY {_WORST}, {_SUREST}, Host, ImageId, PID, TID, every.Address)[1:{places}] AS Places
FROM every
GROUP BY Finding, Same
ORDER BY Rank, Hosts, Sure, Finding, Same
LIMIT {limit}"""
    return Question(sql, f"{every} SELECT count(*) FROM (SELECT DISTINCT Finding, Same FROM every)")


def findings(severity: str, unchecked: bool) -> Question:
    """Returns what was found in all images: the worst first, and of equals what the fewest hosts have.

    Args:
        severity: the least
        unchecked: whether checks that could not run are rows, at the end
    """
    severities = SEVERITIES[: SEVERITIES.index(severity) + 1]
    where = one_of("Severity", severities) + (" OR Severity IS NULL" if unchecked else "")
    sql = f"""\
WITH {_every(where)}, spread AS (
    SELECT Finding, Same, count(DISTINCT Host) AS Hosts FROM every GROUP BY ALL
)
SELECT Severity, Confidence, Finding, Hosts, Host, PID, Process, TID, Kind, Frame,
       format('{{:#x}}', every.Address) AS Address, Symbol, How, Evidence, Innocent, Technique, StackKey,
       TraceId, ImageId, Status
FROM every JOIN spread USING (Finding, Same)
ORDER BY {_WORST} NULLS LAST, Hosts, {_SUREST}, Finding, Host, ImageId, PID, TID, every.Address"""
    if unchecked:
        return Question(sql)
    said = "{} checks could not run on an image (--unchecked lists them)"
    return Question(sql, "SELECT count(*) FROM findings WHERE Severity IS NULL", said)


def status() -> Question:
    """Returns what became of each image, the failed ones first. What was replaced under its path is named."""
    return Question(
        """\
SELECT status AS Status, path AS Path, image_id AS ImageId, reason AS Reason,
       coalesce(list_sum([each.rows for each in map_values(tables)]), 0)::BIGINT AS Rows,
       seconds AS Seconds, memory // 1048576 AS MiB, warnings AS Warnings, "exit" AS Exit, started AS Started,
       ended AS Ended, "case" AS "Case", note AS Note, identity.compared AS SameIdAs, copies AS Copies,
       ReplacedBy
FROM manifests LEFT JOIN (
    SELECT each AS image_id, list_sort(list(image_id)) AS ReplacedBy
    FROM (SELECT image_id, unnest(replaces) AS each FROM manifests) GROUP BY each
) USING (image_id)
ORDER BY status = 'done', path, image_id"""
    )
