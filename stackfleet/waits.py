# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The command `waits`: for what threads of many machines wait, and the deadlocks, in SQL.

Addresses and IDs differ on each machine. Waits are equal if the same function of the same program asked for
the same kind of object, with the same name, and their chains have the same end. Deadlocks are equal if the
waits of their threads are.
"""

from __future__ import annotations

import argparse

from winstacks.columns.words import CHAIN_ENDS, ENDS_IDLE, THREAD_KINDS

from .database import Database
from .layout import WAITS
from .questions import Question
from .sqltext import quoted, some, sql_list

NARROW = (
    *("WaitsFor", "WaitName", "ChainEnd", "Hosts", "Threads", "Seconds", "Processes", "Function"),
    *("Hostnames", "Number", "Cycle"),
)
"""The columns of a table that is not wide."""

# Only what stands behind `!` has an offset in a function; the name of a heap's lock has the heap's address.
_WAITING = """\
waiting AS (
    SELECT *, CASE WHEN contains(Symbol, '!') THEN regexp_replace(Symbol, '[+]0x[0-9a-f]+$', '')
                   ELSE Symbol END AS Function,
           regexp_replace(WaitName, ' of 0x[0-9a-f]+$', '') AS Name
    FROM waits JOIN hosts USING (ImageId)
    WHERE TID IS NOT NULL
)"""


def add_to(command: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    command.add_argument(
        "--deadlocks", action="store_true", help="a row for equal deadlocks, in place of equal waits"
    )
    command.add_argument("--idle", action="store_true", help="also list threads that wait for work")


def asked(options: argparse.Namespace, database: Database) -> Question:
    """Returns the query that the options ask for."""
    return deadlocks() if options.deadlocks else waits(options.idle)


def waits(idle: bool) -> Question:
    """Returns the waits of all images, equal ones as one row: the worst ends of chains first, then those on
    the most hosts.

    Args:
        idle: whether threads that wait for work are listed
    """
    where = "true" if idle else f"ChainEnd <> {quoted(ENDS_IDLE)}"
    sql = f"""\
WITH {_WAITING}
SELECT WaitsFor, Name AS WaitName, ChainEnd, count(DISTINCT Host) AS Hosts,
       count(DISTINCT (ImageId, PID, TID)) AS Threads,
       max(date_diff('second', Since, CaptureTime)) AS Seconds, lower(Process) AS Processes,
       Function, {some("HostText")} AS Hostnames,
       {some("OwnerProcess")} AS OwnerProcesses, {some("Known")} AS Known, {some("ImageId")} AS ImageIds,
       min(TraceId) AS TraceId
FROM waiting JOIN (SELECT ImageId, CaptureTime FROM image) USING (ImageId)
WHERE {where}
GROUP BY WaitsFor, Name, ChainEnd, lower(Process), Function
ORDER BY list_position({sql_list(list(CHAIN_ENDS))}, ChainEnd), Hosts DESC, Threads DESC, WaitsFor, Name,
         Processes, Function"""
    return Question(sql, WAITS, kinds=THREAD_KINDS)


def deadlocks() -> Question:
    """Returns the deadlocks of all images, equal ones as one row, those on the most hosts first."""
    step = "concat_ws(' ', WaitsFor, Name, 'in', lower(Process), Function)"
    sql = f"""\
WITH {_WAITING}, cycles AS (
    SELECT ImageId, Deadlock, any_value(HostText) AS HostText, list_sort(list(Step)) AS Cycle,
           list(DISTINCT Process) AS Processes, min(TraceId) AS TraceId
    FROM (SELECT DISTINCT ImageId, HostText, Deadlock, PID, TID, Process, TraceId, {step} AS Step
          FROM waiting WHERE Deadlock IS NOT NULL)
    GROUP BY ImageId, Deadlock
)
SELECT count(DISTINCT HostText) AS Hosts, count(*) AS Number, len(Cycle) AS Threads,
       {some("HostText")} AS Hostnames, list_sort(list_distinct(flatten(list(Processes)))) AS Processes,
       Cycle, min(Evidence) AS Evidence, {some("ImageId")} AS ImageIds, min(TraceId) AS TraceId
FROM cycles JOIN (SELECT ImageId, Deadlock, Evidence FROM waits WHERE TID IS NULL)
     USING (ImageId, Deadlock)
GROUP BY Cycle
ORDER BY Hosts DESC, Number DESC, Cycle"""
    return Question(sql, WAITS, kinds=THREAD_KINDS)
