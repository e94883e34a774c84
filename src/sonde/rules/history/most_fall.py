"""How far a series may have fallen without its noise showing it."""

from sonde.rules.history.block_means import BlockMeans, line_through


def most_fall(blocks: BlockMeans, num: int | None = None) -> float:
    """The largest fall over the last values that is within two standard errors of the line through them.

    That a series was not seen to fall says little where its noise would have hidden the fall: who claims that it
    stands still has to rule out that it fell. NaN below eight blocks.

    Args:
        blocks: Of the series.
        num: The last so many values, in whole blocks; all where left out.

    Example:
        >>> blocks = BlockMeans()
        >>> for i in range(200):
        ...     blocks = blocks.extended(1.0 + 0.1 * (-1) ** (i // 4))
        >>> round(most_fall(blocks), 2)
        0.11
    """
    num_blocks = len(blocks.means) if num is None else min(num // blocks.width, len(blocks.means))
    if num_blocks < 8:
        return float("nan")
    slope, error = line_through(blocks.means[-num_blocks:])
    return (2 * error - slope) * num_blocks
