"""Bytes as people read them."""


def sized(number: float) -> str:
    """A number of bytes with the largest unit that fits, to three figures.

    Example:
        >>> sized(100), sized(3 * 2**30 / 2), sized(4.8e7)
        ('100 bytes', '1.5 GiB', '45.8 MiB')
    """
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} bytes"
