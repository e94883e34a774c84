"""Which names a caller may log under: those that the watching does not use itself."""

from typing import Any

# The first words of all that a watched training records by itself (docs/how-to/read-the-series.md). `val` is not among
# them: evaluations are the caller's.
_OWN = frozenset(
    (
        *("act", "adam", "amp", "attn", "batch", "clip", "device", "epoch", "evaluation", "flops", "gain", "grad"),
        *("gradient_monitor", "host", "label", "logits", "loss", "lr", "memory", "monitor", "operator", "optimizer"),
        *("phase", "spectrum", "throughput", "time", "update", "weight"),
    )
)


def is_sondes(name: Any) -> bool:
    """Whether a name is one that the watching may record a series under.

    Example:
        >>> is_sondes("grad/norm"), is_sondes("lr@head"), is_sondes("accuracy"), is_sondes("val/f1")
        (True, True, False, False)
    """
    return isinstance(name, str) and name.partition("@")[0].partition("/")[0] in _OWN
