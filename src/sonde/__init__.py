"""Sonde watches neural-network training, says what is wrong and why, and helps to set it right."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sonde.monitor.watch import Watch, watch
    from sonde.reports.calibrating import calibrate
    from sonde.reports.comparing import compare
    from sonde.reports.diagnosing import diagnose
    from sonde.reports.report import report
    from sonde.store.reader import Run, load
    from sonde.store.writer import Writer, record

__version__ = "0.1.0"

# Public name -> module that holds it. Loaded on first use: importing `sonde` costs nothing and pulls in no torch.
_PUBLIC = {
    "Run": "sonde.store.reader",
    "Watch": "sonde.monitor.watch",
    "Writer": "sonde.store.writer",
    "calibrate": "sonde.reports.calibrating",
    "compare": "sonde.reports.comparing",
    "diagnose": "sonde.reports.diagnosing",
    "load": "sonde.store.reader",
    "record": "sonde.store.writer",
    "report": "sonde.reports.report",
    "watch": "sonde.monitor.watch",
}

__all__ = [
    "Run",
    "Watch",
    "Writer",
    "__version__",
    "calibrate",
    "compare",
    "diagnose",
    "load",
    "record",
    "report",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'sonde' has no attribute {name!r}; it has {', '.join(__all__)}.")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_PUBLIC[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
