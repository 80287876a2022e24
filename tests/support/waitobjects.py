# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Threads that wait for objects and locks of a forged kernel, by wait blocks as its symbols describe them.

forged = Waiting("win7-x64")                # blocks lead to each other; since 10 they are an array
first, second = forged.thread(), forged.thread()
mutant = forged.mutant(second)
forged.wait(first, mutant)
"""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Optional, Sequence

from tests.forge import kernels
from tests.forge.isf import Isf
from tests.forge.kernel import Kernel
from tests.forge.obj import Obj, ring
from tests.forge.process import Process
from tests.forge.thread import Thread

PID = 3300
EVENT, MUTANT, PROCESS, SEMAPHORE, THREAD, TIMER, GATE = 1, 2, 3, 5, 6, 8, 7
USER_REQUEST, RESOURCE, FAST_MUTEX, GUARDED_MUTEX, LPC_REPLY = 6, 27, 34, 35, 17
ANY, ALL = 1, 0

MESSAGES = {
    "win7-x64": {
        "WaitingThread": 0x58,
        "PortQueue": 0x68,
        "OwnerPort": 0x70,
        "ConnectionPort": 0xC8,
        "ServerThread": 0xD0,
    },
    "win10-x64": {
        "PortQueue": 0x10,
        "OwnerPort": 0x18,
        "WaitingThread": 0x20,
        "ConnectionPort": 0xC0,
        "ServerThread": 0xC8,
    },
}
"""KALPC_MESSAGE of public symbols of 7601 and 19041."""
PORT = {"CommunicationInfo": 0x10, "OwnerProcess": 0x18}
INFO = {"ConnectionPort": 0, "ServerCommunicationPort": 8, "ClientCommunicationPort": 0x10}


def _structure(members: Dict[str, int], size: int) -> Dict[str, Any]:
    pointer = {"kind": "pointer", "subtype": {"kind": "base", "name": "void"}}
    fields = {name: {"type": pointer, "offset": offset} for name, offset in members.items()}
    return {"kind": "struct", "size": size, "fields": fields}


def with_messages(table: Isf, name: str) -> Isf:
    """Returns a symbol table with ALPC's structures, which the forge's small tables lack."""
    data = copy.deepcopy(table.data)
    types = data["user_types"]
    types["_KALPC_MESSAGE"] = _structure(MESSAGES[name], 0x118)
    types["_ALPC_PORT"] = _structure(PORT, 0x1D8)
    types["_ALPC_COMMUNICATION_INFO"] = _structure(INFO, 0x48)
    thread = types["_ETHREAD"]
    pointer = {"kind": "pointer", "subtype": {"kind": "base", "name": "void"}}
    thread["fields"].setdefault("AlpcMessage", {"type": pointer, "offset": thread["size"]})
    thread["size"] += 8
    return Isf(data)


class Waiting:
    """A kernel and a process whose threads wait.

    Args:
        name: the forge's kernel
        messages: whether its symbols describe ALPC
        kernel: a kernel that exists already

    Attributes:
        kernel, process: these
    """

    def __init__(self, name: str, messages: bool = False, kernel: Optional[Kernel] = None) -> None:
        known = kernels.load(name)
        table = with_messages(known.table, name) if messages else known.table
        self.kernel = kernel or Kernel(table, **known.options())
        self.process: Process = self.kernel.process("server.exe", PID)
        self._tids = PID
        self._lists: Dict[int, List[int]] = {}

    def thread(self, process: Optional[Process] = None, **options: Any) -> Thread:
        """Returns a new thread, which waits for nothing until it is told."""
        self._tids += 4
        return (process or self.process).thread(self._tids, teb=False, **{"state": 1, **options})

    def object(self, type_name: str, kind: str, header: int, signal: int = 0) -> Obj:
        """Returns an object of the object manager with a dispatcher header."""
        made = self.kernel.pool.executive(type_name, kind)
        self._header(made, header, signal)
        return made

    def _header(self, made: Obj, header: int, signal: int) -> None:
        path = "Header." if made.has("Header.Type") else ""
        made[f"{path}Type"] = header
        made[f"{path}SignalState"] = signal
        ring(self.kernel.space, [made.at(f"{path}WaitListHead")])

    def mutant(self, owner: Optional[Thread]) -> Obj:
        """Returns a mutex object that a thread owns, or a free one."""
        made = self.object("_KMUTANT", "Mutant", MUTANT, 0 if owner else 1)
        made["OwnerThread"] = owner.ethread.address if owner else 0
        return made

    def event(self) -> Obj:
        return self.object("_KEVENT", "Event", EVENT)

    def wait(
        self,
        thread: Thread,
        *objects: Obj,
        header: str = "Header",
        reason: int = USER_REQUEST,
        kind: int = ANY,
        listed: bool = True,
        embedded: bool = False,
    ) -> List[Obj]:
        """Lets a thread wait for objects; returns its wait blocks.

        Args:
            thread: the thread
            objects: what it waits for
            header: member of the objects that has the dispatcher header
            reason, kind: WaitReason, and WaitType of the blocks
            listed: whether the objects' lists have the blocks
            embedded: whether the blocks are those in the thread, as Windows has them for up to three objects
        """
        kernel, isf = self.kernel, self.kernel.isf
        size = isf.size("_KWAIT_BLOCK")
        if embedded:
            base = thread.kthread.at("WaitBlock")
        else:
            base = kernel.pool.allocate(size * max(len(objects), 1))
        blocks = [
            Obj(kernel.space, isf, "_KWAIT_BLOCK", base + number * size) for number in range(len(objects))
        ]
        for number, (block, target) in enumerate(zip(blocks, objects)):
            block.put(Thread=thread.ethread.address, Object=target.at(header), WaitType=kind)
            block.maybe("NextWaitBlock", blocks[(number + 1) % len(blocks)].address)
            head = target.at(f"{header}.WaitListHead")
            links = self._lists.setdefault(head, [head])
            if listed:
                links.append(block.at("WaitListEntry"))
            ring(kernel.space, links if listed else [block.at("WaitListEntry")])
        thread.kthread["State"], thread.kthread["WaitReason"] = 5, reason
        thread.kthread["WaitBlockList"] = base
        thread.kthread.maybe("WaitBlockCount", len(blocks))
        return blocks

    def mutex(self, type_name: str, owner: Optional[Thread]) -> Obj:
        """Returns a fast or guarded mutex that a thread owns."""
        made = self.kernel.obj(type_name, tag=b"Mutx")
        member = "Gate" if made.has("Gate") else "Event"
        made[f"{member}.Header.Type"] = GATE if member == "Gate" else EVENT
        ring(self.kernel.space, [made.at(f"{member}.Header.WaitListHead")])
        made["Owner"] = owner.ethread.address if owner else 0
        return made

    def message(self, client: Thread, server: Optional[Thread], owner: Optional[Process] = None) -> Obj:
        """Lets a thread wait for the answer to a message.

        Args:
            client: the thread
            server: the thread that has the message; None: it is in a port's queue
            owner: the process of the server's port
        """
        message, port = (self.kernel.obj(name, tag=b"Alpc") for name in ("_KALPC_MESSAGE", "_ALPC_PORT"))
        message.put(WaitingThread=client.ethread.address, PortQueue=0 if server else port.address)
        message["ServerThread"] = server.ethread.address if server else 0
        if owner is not None:
            message["ConnectionPort"] = port.address
            port["OwnerProcess"] = owner.eprocess.address
        client.ethread["AlpcMessage"] = message.address
        client.kthread["State"], client.kthread["WaitReason"] = 5, LPC_REPLY
        return message


def rows_by_tid(rows: Sequence[Any]) -> Dict[int, List[Dict[str, Any]]]:
    """Returns rows without frames by TID."""
    found: Dict[int, List[Dict[str, Any]]] = {}
    for _, row in rows:
        if isinstance(row["TID"], int):
            found.setdefault(row["TID"], []).append(row)
    return found
