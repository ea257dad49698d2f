# SPDX-License-Identifier: MIT
"""Who times is alone on a GPU: a lock that all judges of a machine share, whoever runs them.

Two at once would share the device in turns: calls would take longer than they do, and what a chain costs by itself
would be measured too long, to be subtracted from somebody's time. Judges that only check do not mind one another, so
any number of them may hold the lock together.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


def lock_file(device: str) -> Path:
    """Where the lock of a device lies; ``device`` is any name that is the device's alone."""
    kept = "".join(letter if letter.isalnum() else "-" for letter in device)
    return Path(tempfile.gettempdir()) / f"warpwave-device-{kept}.lock"


@contextlib.contextmanager
def holding(device: str, waiting: Callable[[], None], shared: bool = False) -> Iterator[bool]:
    """Within: no other judge holds ``device``, with ``shared`` none but such as share it, too; ``waiting`` is called
    once if one does. False where no lock can be.

    The lock goes with the process, however it ends.
    """
    try:
        fd = os.open(lock_file(device), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError:
        yield False
        return
    try:
        facts = os.fstat(fd)
        if facts.st_uid == os.geteuid() and facts.st_nlink == 1:      # not a link to something else of ours
            with contextlib.suppress(OSError):
                os.fchmod(fd, 0o666)        # another user's judge has to open it as well
        wanted = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(fd, wanted | fcntl.LOCK_NB)
        except OSError:
            waiting()
            fcntl.flock(fd, wanted)
        yield True
    finally:
        os.close(fd)
