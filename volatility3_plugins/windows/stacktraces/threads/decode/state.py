# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Names of scheduling states and wait reasons.

Source: the public enumerations _KTHREAD_STATE and _KWAIT_REASON (wdm.h and the kernel's symbols). If Windows
gave a number a new meaning, the name here is that of the newest meaning.
"""

from __future__ import annotations

RUNNING = 2
TERMINATED = 4
WAITING = 5

_STATES = (
    *("Initialized", "Ready", "Running", "Standby", "Terminated", "Waiting", "Transition"),
    *("DeferredReady", "GateWait", "WaitingForProcessInSwap"),
)
_REASONS = (
    *("Executive", "FreePage", "PageIn", "PoolAllocation", "DelayExecution", "Suspended", "UserRequest"),
    *("WrExecutive", "WrFreePage", "WrPageIn", "WrPoolAllocation", "WrDelayExecution", "WrSuspended"),
    *("WrUserRequest", "WrEventPair", "WrQueue", "WrLpcReceive", "WrLpcReply", "WrVirtualMemory"),
    *("WrPageOut", "WrRendezvous", "WrKeyedEvent", "WrTerminated", "WrProcessInSwap", "WrCpuRateControl"),
    *("WrCalloutStack", "WrKernel", "WrResource", "WrPushLock", "WrMutex", "WrQuantumEnd"),
    *("WrDispatchInt", "WrPreempted", "WrYieldExecution", "WrFastMutex", "WrGuardedMutex", "WrRundown"),
    *("WrAlertByThreadId", "WrDeferredPreempt", "WrPhysicalFault", "WrIoRing", "WrMdlCache", "WrRcu"),
)


def state_name(state: int) -> str:
    """Returns the name of a KTHREAD.State; a number without a name is returned as text."""
    return _STATES[state] if 0 <= state < len(_STATES) else str(state)


def wait_reason_name(reason: int) -> str:
    """Returns the name of a KTHREAD.WaitReason; a number without a name is returned as text."""
    return _REASONS[reason] if 0 <= reason < len(_REASONS) else str(reason)
