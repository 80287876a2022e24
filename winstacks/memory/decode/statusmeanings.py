# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The meanings of words of Status for rules about the row: each word of `StatusCode` names its own.

`statuscodes.words_that` gives the words with one of these meanings. A rule that depends on words asks for a
meaning; it lists no words, so that a new word, which must have its meanings, reaches all rules.
"""

from __future__ import annotations

from enum import Flag, auto


class Means(Flag):
    """The meanings of a word."""

    PLAIN = 0
    """It is shown, and no rule depends on it."""

    # Stacks.
    FRAMES_MISSING = auto()
    """Frames of the stack are missing, or may be."""
    FRAMES_LOST = auto()
    """Frames existed, and are not in the image or cannot be decoded."""
    COUNTS_STACKS = auto()
    """Its number counts stacks."""
    NO_STACK_HERE = auto()
    """A thread, or a half of a process, that has no stack of this kind."""
    NONE_LOST = auto()
    """A row without a stack for which no stack was lost."""
    CODE_UNSURE = auto()
    """Code on the way was not read, or contradicts its unwind data: the caller may be another one."""
    SCANNED = auto()
    """Data that the walk needed was missing, so that it had to scan for the next frame."""

    # Structures.
    ABSENT = auto()
    """A structure that was looked for and is not in the image."""
    NO_THREAD = auto()
    """A row of a list of threads that is no thread, or one that cannot be read."""
    NO_REGISTERS = auto()
    """It explains that a thread has no registers."""
    NAMELESS_PROCESS = auto()
    """The name of the process is unknown if it is empty."""

    # Names and modules.
    NAME_INCOMPLETE = auto()
    """The name might be another one if more of the image could be read."""
    LIST_INCOMPLETE = auto()
    """The name, or the lack of one, comes from an incomplete list: it may be wrong."""
    LOWERS_CONFIDENCE = auto()
    """The lists that cover the address are incomplete: a finding there is only possible."""
    EXPORTS_LOST = auto()
    """The module's exports, or some of them, were not read."""
    FILE_WOULD_HELP = auto()
    """The module's file would give better names."""
    NOT_ITS_FILE = auto()
    """The memory is not of the module's file."""

    # Contradictions.
    DISAGREES = auto()
    """Two structures disagree: all that is made of the stack is in doubt."""
    DATABASE_DOUBTFUL = auto()
    """The database may be the wrong one: so may each of its stacks."""
