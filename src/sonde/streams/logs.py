"""Sonde's warnings, which go where the user sends logs, or to stderr."""

import logging
import sys
from collections.abc import Iterator
from typing import Any, final

from sonde.streams.residue import no_residue


def logger(name: str) -> "_Logger":
    """As `logging.getLogger`; a warning that cannot be written leaves nothing in the buffer of stderr or stdout."""
    return _Logger(logging.getLogger(name), {})


@final
class _Logger(logging.LoggerAdapter[logging.Logger]):
    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self.isEnabledFor(level):
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # who called, not this line
            with no_residue(stream for stream in _streams(self.logger) if stream in (sys.stdout, sys.__stdout__)):
                super().log(level, msg, *args, **kwargs)


def _streams(of: logging.Logger) -> Iterator[Any]:
    """Where the handlers write that its records reach."""
    logger: logging.Logger | None = of
    while logger is not None:
        yield from (getattr(handler, "stream", None) for handler in logger.handlers)
        logger = logger.parent if logger.propagate else None
