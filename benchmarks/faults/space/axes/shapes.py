"""What goes into a model and what comes out."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of one example.

    Args:
        kind: `vector`, `image`, `series`, `tokens`, `set`, `graph`, `ids`, `pair` or `image-pair`.
        dim: Numbers to an element; the whole example of a vector.
        length: Elements to an example; pixels to a side of an image.
        symbols: Different tokens or ids.
        outputs: Numbers that come out.
        each: Whether they come out for each element, or pixel, instead of once.
    """

    kind: str
    dim: int = 1
    length: int = 1
    symbols: int = 0
    outputs: int = 1
    each: bool = False
