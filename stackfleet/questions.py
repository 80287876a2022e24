# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The queries of a lake, in SQL: rare stacks, differences, and the state of images. See `findings`, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Optional

from winstacks.columns.words import EXACT

from .layout import IMAGE, MANIFESTS, TRACES
from .sqltext import chosen, one_of, quoted, some

KEYS = ("StackKey", "ShapeKey")
CRASH_KEYS = ("Driver", "BugCheck")
"""Columns that distinguish crashes, in addition to their stacks."""
LEAST_HOSTS = 5
"""The fewest hosts with the same versions of modules among which a stack can be called rare."""

MOST_PAGES = 256
"""The most images with pages of their own in a report that does not choose them: those with the worst
findings."""

SURE = f"KeyQuality = {quoted(EXACT)} AND NOT Incomplete"
"""The condition for stacks whose keys can be compared."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A query, a second query that counts the rows that the first leaves out, and what both are about.

    Attributes:
        table: the table that is searched; empty if only the text of the query says it
        left_out: a query that returns a number; empty if nothing is left out
        remarks: message about that number, with {} in its place
        kinds: kinds of stacks that are searched; empty for all
        images: ImageIds that are searched; None for all
    """

    sql: str
    table: str = ""
    left_out: str = ""
    remarks: str = ""
    kinds: Sequence[str] = ()
    images: Optional[Sequence[str]] = None


def rare(by: str, kinds: Sequence[str], max_hosts: int, limit: int, images: int, partial: bool) -> Question:
    """Returns the stacks that few hosts have, the rarest first.

    The rank of a stack is the share of hosts with it among the hosts with the same versions of all its
    modules. If there are fewer than LEAST_HOSTS of these, the share means nothing: such stacks come last.
    Stacks with code outside any file whose keys are guesses are a group behind them, with their own hosts.

    Args:
        by: key, one of KEYS
        kinds: kinds of the stacks; all when empty
        limit: number of rows; 0 for all
        images: number of images in the lake
        partial: whether stacks without exact keys count
    """
    high, low = (f"{by[: -len('Key')]}{half}" for half in ("High", "Low"))
    of_kind = chosen("Kind", kinds or None)
    condition = f"{high} IS NOT NULL AND {of_kind}"
    where, of_stacks = (condition, "") if partial else (f"{condition} AND Sure", f" AND {SURE}")
    # On a tie, stacks with code outside any file come first, and then keys in the order of their text: halves
    # of keys are signed.
    order = "Comparable DESC, Hosts / Among, Outside DESC, Among DESC"
    materialized = "NOT MATERIALIZED" if by == KEYS[0] else "MATERIALIZED"
    few = _FEW.format(
        high=high,
        low=low,
        where=where,
        max_hosts=max_hosts,
        spread=_spread(max_hosts),
        materialized=materialized,
    )
    among = (_AMONG if by == KEYS[0] else _AMONG_SHAPES).format(
        most=max(images, 1), high=high, low=low, where=where, limit=limit, least=LEAST_HOSTS
    )
    sql = f"""\
WITH {few}, {among}, ranked AS MATERIALIZED (
    SELECT High, Low, Hosts, Outside, coalesce(Among, Most) AS Among,
           coalesce(Among, Most) >= {LEAST_HOSTS} AS Comparable
    FROM few LEFT JOIN among USING ({"ModuleSet" if by == KEYS[0] else "High, Low"}), most
    ORDER BY {order}, High < 0, High, Low < 0, Low{f" LIMIT {limit}" if limit else ""}
), found AS MATERIALIZED (
    SELECT DISTINCT ImageId FROM keys JOIN ranked ON {high} = High AND {low} = Low WHERE {where}
)
SELECT Hosts, Among, {_OF_STACKS}, Comparable, {quoted(EXACT)} AS KeyQuality, {by}, {_IMAGES}
FROM (SELECT *, half({by}, 0) AS High, half({by}, 1) AS Low FROM traces SEMI JOIN found USING (ImageId)
      WHERE {by} IS NOT NULL AND {of_kind}{of_stacks})
JOIN ranked USING (High, Low) JOIN hosts USING (ImageId)
GROUP BY {by}, Hosts, Among, Comparable, Outside
ORDER BY {order}, {by}"""
    if partial:
        return Question(sql, TRACES, kinds=kinds)
    guessed = f"""\
SELECT count(DISTINCT Host) AS Hosts, NULL::BIGINT AS Among, {_OF_STACKS}, false AS Comparable,
       'guessed' AS KeyQuality, {by}, {_IMAGES}
FROM traces JOIN hosts USING (ImageId)
WHERE {by} IS NOT NULL AND {of_kind} AND Unbacked > 0 AND NOT coalesce({SURE}, false)
GROUP BY {by} HAVING count(DISTINCT Host) <= {max_hosts}"""
    sql = f"""\
SELECT * EXCLUDE (Place) FROM (
    SELECT *, row_number() OVER () AS Place FROM ({sql})
    UNION ALL
    SELECT *, 9223372036854775807 AS Place FROM ({guessed})
) ORDER BY Place, Hosts, {by}"""
    left_out = (
        f"SELECT coalesce(sum(Stacks), 0)::BIGINT FROM keys "
        f"WHERE {condition} AND NOT Sure AND NOT coalesce(Unbacked, 0) > 0"
    )
    return Question(sql, TRACES, left_out, _NOT_EXACT, kinds)


_NAMES = "list_sort(list(DISTINCT HostText))"
_OF_STACKS = f"""\
{_NAMES} AS Hostnames, total(Count) AS Count, max(Unbacked) AS Unbacked, min(Stack) AS Stack,
       {some("Process")} AS Processes,
       list_sort(list(DISTINCT Kind) FILTER (WHERE Kind IS NOT NULL)) AS Kinds"""
_IMAGES = f"{some('ImageId')} AS ImageIds"


def _spread(max_hosts: int) -> str:
    """Returns a condition that excludes keys on many hosts: each host sets one bit of a number."""
    if max_hosts > _BITS // 2:
        return "true"
    return f"bit_count(bit_or(1::BIGINT << (hash(HostKey) % {_BITS})::INTEGER)) <= {max_hosts}"


_BITS = 62

_FEW = """\
candidates AS MATERIALIZED (
    SELECT {high} AS High, {low} AS Low, max(Unbacked) > 0 AS Outside, min(ModuleSet) AS ModuleSet,
           CASE WHEN min(HostKey) = max(HostKey) THEN 1 WHEN count(*) = 2 THEN 2 END::UTINYINT AS Known
    FROM keys WHERE {where} GROUP BY {high}, {low}
    HAVING {spread}
), counted AS MATERIALIZED (
    SELECT High, Low, count(DISTINCT HostKey) AS Hosts
    FROM keys JOIN (SELECT High, Low FROM candidates WHERE Known IS NULL) ON {high} = High AND {low} = Low
    WHERE {where} GROUP BY High, Low
), few AS {materialized} (
    SELECT High, Low, Known::BIGINT AS Hosts, Outside, ModuleSet FROM candidates WHERE Known <= {max_hosts}
    UNION ALL
    SELECT High, Low, Hosts, Outside, ModuleSet FROM candidates JOIN counted USING (High, Low)
    WHERE Hosts <= {max_hosts}
)"""
"""Keys on few hosts. Hosts are counted only for keys with more than two rows, on more than one host.

There are as many candidates as there are rare keys, so they are materialized once, in few bytes each.
"""

_MEMBERS = """\
most AS MATERIALIZED (
    SELECT max(HostNumber) AS Most FROM hosts
), of_set AS MATERIALIZED (
    SELECT ModuleSet, unnest(any_value(Versions)) AS Version
    FROM modulesets SEMI JOIN {sets} USING (ModuleSet)
    GROUP BY ModuleSet
), has AS MATERIALIZED (
    SELECT DISTINCT Version, HostNumber
    FROM modules SEMI JOIN of_set USING (Version) JOIN hosts USING (ImageId)
), spread AS MATERIALIZED (
    SELECT Version, count(*) AS Hosts FROM has GROUP BY Version
), rarest AS MATERIALIZED (
    SELECT ModuleSet, arg_min(Version, Hosts) AS Version, count(*) AS Versions,
           min(Hosts) * 64 < any_value(Most) AS Few
    FROM of_set JOIN spread USING (Version), most
    GROUP BY ModuleSet
), bits AS (
    SELECT Version, bitstring_agg(HostNumber::INTEGER, 1, {most}) AS Bits
    FROM has SEMI JOIN (SELECT Version FROM of_set SEMI JOIN (FROM rarest WHERE NOT Few) USING (ModuleSet))
             USING (Version)
    GROUP BY Version
), whole AS MATERIALIZED (
    SELECT ModuleSet, bit_and(Bits) AS Bits
    FROM of_set SEMI JOIN (FROM rarest WHERE NOT Few) USING (ModuleSet) JOIN bits USING (Version)
    GROUP BY ModuleSet
), of_rarest AS MATERIALIZED (
    SELECT ModuleSet, Versions, HostNumber FROM rarest JOIN has USING (Version) WHERE Few
), needed AS MATERIALIZED (
    SELECT ModuleSet, Versions, HostNumber, Version FROM of_rarest JOIN of_set USING (ModuleSet)
), members AS MATERIALIZED (
    SELECT ModuleSet, HostNumber FROM needed SEMI JOIN has USING (Version, HostNumber)
    GROUP BY ModuleSet, HostNumber, Versions
    HAVING count(*) = Versions
)"""
"""The hosts with all versions of a set of modules.

Versions on many hosts are compared as bit strings with one bit for each host: there are few such versions. A
set with a version that few hosts have is searched for on these hosts only. So the cost grows with the number
of rows, and not with hosts times sets. The needed versions are materialized, because DuckDB would else join
the versions of all hosts first.
"""

_AMONG = (
    """\
sets AS MATERIALIZED (
    SELECT DISTINCT ModuleSet FROM candidates
), """
    + _MEMBERS.replace("{sets}", "sets")
    + """, among AS MATERIALIZED (
    SELECT ModuleSet, bit_count(Bits)::BIGINT AS Among FROM whole
    UNION ALL
    SELECT ModuleSet, count(*) AS Among FROM members GROUP BY ModuleSet
)"""
)
"""The number of hosts among which a key is rare. All stacks with one StackKey have the same modules."""

_AMONG_SHAPES = (
    """\
sets AS MATERIALIZED (
    SELECT DISTINCT ModuleSet
    FROM keys SEMI JOIN (SELECT High, Low FROM few) ON {high} = High AND {low} = Low WHERE {where}
), """
    + _MEMBERS.replace("{sets}", "sets")
    + """, sizes AS MATERIALIZED (
    SELECT ModuleSet, bit_count(Bits)::BIGINT AS Size FROM whole
    UNION ALL
    SELECT ModuleSet, count(*) AS Size FROM members GROUP BY ModuleSet
), bounds AS MATERIALIZED (
    SELECT High, Low, any_value(Hosts) AS Hosts, max(Size) AS Least,
           CASE WHEN min(ModuleSet) = max(ModuleSet) THEN max(Size)
                ELSE least(sum(Size), any_value(Most)) END::BIGINT AS Greatest
    FROM (SELECT {high} AS High, {low} AS Low, keys.ModuleSet AS ModuleSet FROM keys WHERE {where})
         JOIN (SELECT High, Low, Hosts FROM few) USING (High, Low) JOIN sizes USING (ModuleSet), most
    GROUP BY High, Low
), bar AS MATERIALIZED (
    SELECT CASE WHEN count(*) = {limit} THEN max(Share) END AS Share
    FROM (SELECT Hosts / Least AS Share FROM bounds WHERE Least >= {least} ORDER BY Share LIMIT {limit})
), uncertain AS MATERIALIZED (
    SELECT High, Low FROM bounds, bar
    WHERE Least < Greatest AND (Share IS NULL OR Hosts / Greatest <= Share)
), counted_sets AS (
    SELECT High, Low, bit_count(bit_or(Bits))::BIGINT AS Exact
    FROM (
        SELECT DISTINCT High, Low, keys.ModuleSet AS ModuleSet
        FROM keys JOIN uncertain ON {high} = High AND {low} = Low WHERE {where}
    ) JOIN (
        FROM whole
        UNION ALL
        SELECT ModuleSet, bitstring_agg(HostNumber::INTEGER, 1, {most}) AS Bits
        FROM members GROUP BY ModuleSet
    ) USING (ModuleSet)
    GROUP BY High, Low
), among AS MATERIALIZED (
    SELECT High, Low, coalesce(Exact, Least) AS Among FROM bounds LEFT JOIN counted_sets USING (High, Low)
)"""
)
"""The same for ShapeKeys, for which hosts may have several sets: hosts with any of these sets count.

At least as many hosts as have the most frequent of these sets, and at most the sum over all of them. Hosts
are counted one by one only where these differ and the key may still be among the first rows: {limit} keys
whose least number is known to be enough set the bar.
"""


_CRASHES = """\
crashes AS (
    SELECT ImageId, Host, HostText, BugCheckCode, BugCheck, BugCheckParameters
    FROM image JOIN hosts USING (ImageId) WHERE BugCheckCode IS NOT NULL
)"""
_HOSTS_OF = f"{some('HostText')} AS Hostnames, {_IMAGES}"
_NAMED = "format('{:#x} {}', BugCheckCode, coalesce(BugCheck, ''))"


def rare_of_crashes(by: str, max_hosts: int, limit: int) -> Question:
    """Returns the bug checks on few hosts, or the drivers in the crash stacks of few hosts.

    A driver of another version is another driver. A frame in no module is listed by its memory:
    `<no-module>`, or a driver that was unloaded.

    Args:
        by: column, one of CRASH_KEYS
        limit: number of rows; 0 for all
    """
    among = "(SELECT count(DISTINCT Host) FROM crashes) AS Among"
    most = f" LIMIT {limit}" if limit else ""
    if by == "BugCheck":
        return Question(
            f"""\
WITH {_CRASHES}
SELECT {_NAMED} AS BugCheck, count(DISTINCT Host) AS Hosts, {among}, count(*) AS Crashes,
       {some("BugCheckParameters")} AS BugCheckParameters, {_HOSTS_OF}
FROM crashes
GROUP BY BugCheckCode, BugCheck
HAVING count(DISTINCT Host) <= {max_hosts}
ORDER BY Hosts, BugCheckCode{most}""",
            IMAGE,
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
       {some(_NAMED)} AS BugChecks, {_HOSTS_OF}
FROM met JOIN crashes USING (ImageId)
WHERE Driver <> ''
GROUP BY Driver, ModuleStamp, ModuleSize
HAVING count(DISTINCT Host) <= {max_hosts}
ORDER BY Hosts, Guessed, Frame, Driver, ModuleStamp{most}""",
        IMAGE,
    )


_NOT_EXACT = "Stacks left out, without an exact key or incomplete: {} (--partial includes them)"


def diff(
    first: Sequence[str], second: Sequence[str], by: str, kinds: Sequence[str], partial: bool
) -> Question:
    """Returns the differences between the stacks of two groups of images.

    Stacks of a process are equal if their kind, process name, bitness and key are. Counts are compared only
    if both groups are one image: groups of different sizes have different counts.

    Args:
        first, second: ImageIds of each group
        by: key, one of KEYS
        kinds: kinds of the stacks; all when empty
        partial: whether stacks without exact keys count
    """
    condition = f"{by} IS NOT NULL AND {chosen('Kind', kinds or None)}"
    where = condition if partial else f"{condition} AND {SURE}"
    counted = "a.Count IS DISTINCT FROM b.Count" if len(first) == len(second) == 1 else "false"

    def side(ids: Sequence[str]) -> str:
        return f"""\
    SELECT Kind, Process, Arch, {by} AS Key, total(Count) AS Count,
           count(DISTINCT ImageId) AS Images, max(Unbacked) AS Unbacked, min(Stack) AS Stack
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
    both = list(dict.fromkeys((*first, *second)))
    if partial:
        return Question(sql, TRACES, kinds=kinds, images=both)
    of_both = one_of("ImageId", both)
    left_out = f"SELECT count(*) FROM traces WHERE {condition} AND {of_both} AND NOT ({SURE})"
    return Question(sql, TRACES, left_out, _NOT_EXACT, kinds, both)


def selected(selector: str) -> str:
    """Returns the query for the ImageIds of a selector.

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


def status() -> Question:
    """Returns the state of each image, failed images first, then cut ones.

    Images replaced under the same path are named.
    """
    return Question(
        """\
SELECT status AS Status, path AS Path, "rows" AS "Rows", reason AS Reason, image_id AS ImageId,
       seconds AS Seconds, memory // 1048576 AS MiB, warnings AS Warnings, "exit" AS Exit, started AS Started,
       ended AS Ended, "case" AS "Case", note AS Note, same_id_as AS SameIdAs, copies AS Copies, ReplacedBy
FROM manifests LEFT JOIN (
    SELECT each AS image_id, list_sort(list(image_id)) AS ReplacedBy
    FROM (SELECT image_id, unnest(replaces) AS each FROM manifests) GROUP BY each
) USING (image_id)
ORDER BY status = 'done', truncated IS NOT TRUE, path, image_id""",
        MANIFESTS,
    )
