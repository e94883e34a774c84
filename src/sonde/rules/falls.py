"""How far a series may have fallen without its noise showing it."""

from sonde.rules.course import Course, line_through


def most_fall(course: Course, num: int | None = None) -> float:
    """The largest fall over the last values that is within two standard errors of the line through them.

    That a series was not seen to fall says little where its noise would have hidden the fall: who claims that it
    stands still has to rule out that it fell. NaN below eight blocks of the course.

    Args:
        course: Of the series.
        num: The last so many values, in whole blocks; all where left out.

    Example:
        >>> course = Course()
        >>> for i in range(200):
        ...     course = course.extended(1.0 + 0.1 * (-1) ** (i // 4))
        >>> round(most_fall(course), 2)
        0.11
    """
    blocks = len(course.means) if num is None else min(num // course.width, len(course.means))
    if blocks < 8:
        return float("nan")
    slope, error = line_through(course.means[-blocks:])
    return (2 * error - slope) * blocks
