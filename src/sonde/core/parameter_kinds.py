"""What a parameter is for: the vocabulary, and what a name alone tells of it."""

import enum
import functools
import re

_WEIGHT = re.compile(r"(?:^|[._])(?:weight|w|kernel)(?:_[ih]h_l\d+(?:_reverse)?)?$|_proj_weight$")
_EMBEDDING = re.compile(r"(?:^|[._])(?:\w*emb\w*|wte|wpe)(?:[._]|$)|(?:^|[._])tok\w*(?:\.\w*)?$", re.IGNORECASE)
_NORMALISATION = re.compile(r"(?:^|[._])(?:\w*norm\w*|ln\w*|bn\w*)(?:[._]|$)", re.IGNORECASE)
_ADAPTER = re.compile(r"(?:^|[._])lora\w*(?:[._]|$)", re.IGNORECASE)
_POSITION = re.compile(r"(?:^|[._])pos\w*(?:[._]|$)", re.IGNORECASE)


class Kind(enum.StrEnum):
    """What a parameter is for."""

    MATRIX = "matrix"
    """Multiplies what comes from the layer before: the weight of a linear, convolutional or recurrent layer."""
    EMBEDDING = "embedding"
    """A table of vectors that are looked up, or added."""
    NORMALISATION = "normalisation"
    """The scale of a normalisation."""
    BIAS = "bias"
    """Is added."""
    ADAPTER = "adapter"
    """One of the two thin matrices of a low-rank adapter, of which one starts at zero."""
    OTHER = "other"
    """Anything else, and what is not known."""


@functools.lru_cache(maxsize=1 << 17)
def kind_by_name(name: str) -> Kind:
    """What a parameter is for as far as its name tells, by the habits of those who write models.

    For runs without a model table, and for parameters of modules that are the user's own.

    Example:
        >>> [str(kind_by_name(f"blocks.3.{name}")) for name in ("attn.weight", "ln_1.weight", "mlp.bias", "scale")]
        ['matrix', 'normalisation', 'bias', 'other']
    """
    if name.endswith("bias"):
        return Kind.BIAS
    if _ADAPTER.search(name):
        return Kind.ADAPTER
    if _EMBEDDING.search(name):
        return Kind.EMBEDDING
    if _NORMALISATION.search(name):
        return Kind.NORMALISATION
    return Kind.MATRIX if _WEIGHT.search(name) and not _POSITION.search(name) else Kind.OTHER
