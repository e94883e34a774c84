"""Lines between the progress bars of others."""

import sys
from typing import Any


def write(text: str, stream: Any) -> None:
    """Print lines; tqdm's bars, where there are some on a terminal, are taken away and drawn again below.

    Raises:
        OSError, ValueError: the stream is closed.
    """
    bars = getattr(sys.modules.get("tqdm.std"), "tqdm", None)  # whoever has bars has imported it
    if bars is not None and len(getattr(bars, "_instances", ())):
        bars.write(text, file=stream)
    else:
        stream.write(f"{text}\n")
    stream.flush()
