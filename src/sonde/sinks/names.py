"""What our series are called in other tools: the one table of their names, the layout that people know.

What the table does not have keeps its own name. No two tags ever get the same one.
"""

import hashlib
import string
from collections.abc import Mapping
from typing import NamedTuple

# Our path: their name. Behind `@` our tags say where; `{}` is that place. Places differ in their last word or in what
# comes before them, so that whatever a layer is called, two of them never meet.
_LAYOUT: Mapping[str, str] = {
    "loss": "Loss/train",
    "loss@": "Loss/train/{}",
    "loss/ema": "Loss/train_ema",
    "loss/part@": "Loss/parts/{}",
    "val/loss": "Loss/validation",
    "grad/norm": "Gradients/norm_global",
    "grad/norm@": "Gradients/per_layer/{}/norm",
    "grad/mean@": "Gradients/per_layer/{}/mean",
    "grad/std@": "Gradients/per_layer/{}/std",
    "grad/histogram@": "Gradients_Hist/per_layer/{}",
    "act/histogram@": "Activations_Hist/per_layer/{}",
    "weight/norm": "Parameters/norm_global",
    "weight/norm@": "Updates/per_layer/{}/weight_norm",
    "weight/histogram@": "Parameters_Hist/per_layer/{}",
    "update/ratio": "Optimization/update_ratio",
    "update/ratio@": "Updates/per_layer/{}/ratio",
    "update/norm@": "Updates/per_layer/{}/update_norm",
    "lr": "Optimization/lr",
    "lr@": "Optimization/lr/{}",
    "throughput/tokens_per_s": "Performance/tokens_per_sec",
    "throughput/samples_per_s": "Performance/samples_per_sec",
    "device/utilisation": "Performance/gpu_utilization",
    "device/utilisation@": "Performance/gpu_utilization/{}",
    "memory/allocated": "Performance/memory_mb",
    "memory/allocated@": "Performance/memory_mb/{}",
}
_FACTORS = {"memory/allocated": 1e-6}  # where their name has a unit that is not ours

FINDINGS, CONFIG, STEP = "Findings", "Config", "global_step"
"""What findings, the configuration and, where a tool counts its own steps, ours are called there."""

WHOLE = (*(path for path in _LAYOUT if not path.endswith("@")), "val/*", "evaluation/*", "gradient_monitor/*", "epoch")
"""Patterns of the tags of the run as a whole that people look at first."""

LAYERS = tuple(f"{path}*" for path in _LAYOUT if path.endswith("@"))
"""Patterns of the tags of layers that the table has."""

_OWN = "own"
_TAKEN = frozenset({name.partition("/")[0] for name in _LAYOUT.values()} | {FINDINGS, CONFIG, STEP, _OWN})

_PLAIN = frozenset(string.ascii_letters + string.digits + "_-.")
_MOST_CHARS = 250  # MLflow's limit
_DIGEST_BYTES = 8


class Name(NamedTuple):
    """What a series is called elsewhere, and what its values are multiplied by."""

    text: str
    factor: float = 1.0


def tensorboard_name(tag: str) -> Name:
    """The name in TensorBoard, which takes any text and groups by what is before the first `/`.

    Example:
        >>> [tensorboard_name(tag).text for tag in ("loss", "grad/std@head.weight", "act/rms@head")]
        ['Loss/train', 'Gradients/per_layer/head.weight/std', 'act/rms@head']
        >>> tensorboard_name("memory/allocated")
        Name(text='Performance/memory_mb', factor=1e-06)
    """
    path, at, where = tag.partition("@")
    layout = _LAYOUT.get(path + at)
    return Name(layout.format(where) if layout else _own(path) + at + where, _FACTORS.get(path, 1.0))


def portable_name(tag: str) -> Name:
    """The name where only letters, digits and `_ - . : /` and the space are allowed: MLflow, and W&B to be searched.

    As in TensorBoard, but a colon stands for `@`, and any other character, a `/` in a layer's name included, is a
    space, its number in hexadecimal and a dot. Names of more than 250 characters are cut and end in a digest.

    Example:
        >>> [portable_name(tag).text for tag in ("grad/norm@head.weight", "act/rms@head", "act/rms@a[0]")]
        ['Gradients/per_layer/head.weight/norm', 'act/rms:head', 'act/rms:a 5b.0 5d.']
    """
    path, at, where = tag.partition("@")
    layout = _LAYOUT.get(path + at)
    place = portable_text(where)
    if layout:
        text = layout.format(place)
    else:
        text = "/".join(map(portable_text, _own(path).split("/"))) + (f":{place}" if at else "")
    return Name(shortened(text), _FACTORS.get(path, 1.0))


def portable_text(text: str) -> str:
    """One word of such a name.

    Example:
        >>> portable_text("cuda:0"), portable_text("a/b"), portable_text("..")
        ('cuda:0', 'a 2f.b', ' 2e. 2e.')
    """
    plain = _PLAIN - {"."} if text in (".", "..") else _PLAIN  # those would be folders
    return "".join(c if c in plain or c == ":" else f" {ord(c):x}." for c in text)


def shortened(text: str) -> str:
    """At most 250 characters of a name, still its own."""
    if len(text) <= _MOST_CHARS:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    # Two spaces never stand side by side in a name that was not cut.
    return f"{text[: _MOST_CHARS - 2 - len(digest)]}  {digest}"


def _own(path: str) -> str:
    """A path that the table does not have, out of the way of those that it gives.

    A leading underscore is W&B's own.
    """
    first = path.partition("/")[0]
    return f"{_OWN}/{path}" if first in _TAKEN or first.startswith("_") else path
