"""Lines between the progress bars of others."""

import sys
from typing import Any

from sonde.streams.printing import print_or_drop
from sonde.streams.residue import no_residue


def write(text: str, stream: Any) -> None:
    """Print lines; tqdm's bars, where there are some on a terminal, are taken away and drawn again below.

    Nothing of the lines stays in the stream's buffer. Whatever a bar raises is raised.
    """
    bars = getattr(sys.modules.get("tqdm.std"), "tqdm", None)  # whoever has bars has imported it
    if bars is not None and len(getattr(bars, "_instances", ())):
        with no_residue():
            bars.write(text, file=stream)
            stream.flush()
    else:
        print_or_drop(text, stream)
