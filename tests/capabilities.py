"""What root may do beyond other users of a machine, taken away for a while: most tests of this project run as root, too."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

VERSION = 0x20080522  # of linux/capability.h: three words for the first 32 capabilities, and three for the others


@contextmanager
def as_a_user() -> Iterator[None]:
    """Context manager. Root reads no hidden environment until the block ends, in this thread: as any user of the machine."""
    libc, head, mine = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(VERSION, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(head, mine) == 0
    first, _, _, others, _, _ = mine
    mine[0] = mine[3] = 0
    assert libc.capset(head, mine) == 0
    try:
        yield
    finally:
        mine[0], mine[3] = first, others
        assert libc.capset(head, mine) == 0
