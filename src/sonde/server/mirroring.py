"""A folder elsewhere, served from a copy that is kept up to date while the server runs."""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from sonde.core.errors import StoreError
from sonde.store.mirrors import Mirror

POLL_S = 5.0


@contextlib.contextmanager
def mirrored(url: str, *, say: Callable[[str], None], poll_s: float = POLL_S) -> Iterator[Path]:
    """The copy of a folder, for as long as the block lasts.

    Args:
        url: As `Mirror` takes it.
        say: Told what cannot be read, once each.
        poll_s: Seconds between two looks; of a folder that takes long to look at, as long again.

    Raises:
        StoreError: Arrow cannot read such a folder.
    """
    with tempfile.TemporaryDirectory(prefix="sonde-mirror-") as folder:
        mirror, over = Mirror(url, Path(folder)), threading.Event()
        thread = threading.Thread(target=_follow, args=(mirror, over, say, poll_s), name="sonde-mirror")
        thread.start()
        try:
            yield Path(folder)
        finally:
            over.set()
            thread.join()


def _follow(mirror: Mirror, over: threading.Event, say: Callable[[str], None], poll_s: float) -> None:
    said = ""
    while True:
        problem = ""
        try:
            mirror.sync(over.is_set)
            if mirror.left_out:
                problem = (
                    f"{mirror.left_out:,} files do not fit into the copy: the rows of the oldest runs are left out"
                )
        except (StoreError, OSError) as error:
            problem = str(error)
        if problem != said:
            said = problem
            if problem:
                say(problem)
        if over.wait(poll_s):
            return
