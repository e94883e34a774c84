"""Sonde watches neural-network training, says what is wrong and why, and helps to set it right."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sonde.monitor.watch import Watch, watch
    from sonde.reports.calibrating import calibrate
    from sonde.reports.comparing import compare
    from sonde.reports.diagnosing import diagnose
    from sonde.reports.explaining import explain
    from sonde.reports.report import report
    from sonde.store.export import export
    from sonde.store.importing.imports import import_csv, import_mlflow, import_tensorboard, import_wandb
    from sonde.store.reader import Run, load
    from sonde.store.runs import runs
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
    "explain": "sonde.reports.explaining",
    "export": "sonde.store.export",
    "import_csv": "sonde.store.importing.imports",
    "import_mlflow": "sonde.store.importing.imports",
    "import_tensorboard": "sonde.store.importing.imports",
    "import_wandb": "sonde.store.importing.imports",
    "load": "sonde.store.reader",
    "record": "sonde.store.writer",
    "report": "sonde.reports.report",
    "runs": "sonde.store.runs",
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
    "explain",
    "export",
    "import_csv",
    "import_mlflow",
    "import_tensorboard",
    "import_wandb",
    "load",
    "record",
    "report",
    "runs",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'sonde' has no attribute {name!r}; it has {', '.join(__all__)}.")
    from importlib import import_module

    if _PUBLIC[name].startswith("sonde.monitor"):
        from sonde.core.optional import require_torch

        require_torch(f"`sonde.{name}`")
    value = globals()[name] = getattr(import_module(_PUBLIC[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
