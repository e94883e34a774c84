"""`sonde run`: a script that knows nothing of Sonde, watched. Torch is imported by the script, or not at all."""

import builtins
import gc
import io
import os
import runpy
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from sonde.integrations.arguments import Arguments
from sonde.integrations.arrivals import when_imported
from sonde.integrations.tracebacks import without_ours
from sonde.streams.printing import print_or_drop

if TYPE_CHECKING:
    from sonde.config import Effective

_OFF = ("off", "0", "false", "no")


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """A script and how it is to be watched.

    Args:
        target: A file, or a folder or archive with a `__main__.py`; the name of a module where `is_module`.
        args: The words behind it.
        is_module: Run it as `python -m` does.
        run: Folder of the run; `runs/<script>-<time>` where left out, below the folder in which we were started.
        settings: The configuration of the folder in which we were started; that in which it trains where left out.
    """

    target: str
    args: Sequence[str] = ()
    is_module: bool = False
    run: Path | None = None
    settings: "Effective | None" = None

    @property
    def name(self) -> str:
        """A word for it."""
        return self.target.rpartition(".")[2] if self.is_module else Path(self.target).resolve().stem


class Session(Protocol):
    """What watches while the script runs."""

    def finish(self, error: BaseException | None) -> None:
        """The script has ended, by this exception if one left it."""


def is_off() -> bool:
    """Whether the environment's `SONDE` says that nothing is to be watched."""
    return os.environ.get("SONDE", "").lower() in _OFF


def run(script: Script) -> None:
    """Run a script to its end as `python` would, in this process, and watch what it trains.

    What leaves the script leaves this function as well: `SystemExit` with its status, `KeyboardInterrupt`, any other
    exception; where nobody catches it, the interpreter prints the script's traceback and none of our frames. The
    environment's `SONDE=off` runs the script and does nothing else.
    """
    sessions: list[Session] = []
    forget = None
    arguments = Arguments()
    if not is_off():
        arguments.listen()
        start = Path.cwd()  # the script may go elsewhere before it trains

        def begin() -> None:
            # Torch has just left a million objects behind, and going through them takes longer than much of our import.
            is_collecting = gc.isenabled()
            gc.disable()
            try:
                from sonde.integrations.loop import Loop

                sessions.append(Loop(script, start, arguments.read))
            except Exception as error:  # whatever is wrong with us, the script runs
                print_or_drop(f"sonde: the script is not watched: {error!r}", sys.stderr)
            finally:
                if is_collecting:
                    gc.enable()

        forget = when_imported("torch", begin)
    error: BaseException | None = None
    try:
        _execute(script)
    except BaseException as left:
        error = left
        sys.excepthook = _Trimming(sys.excepthook)
        raise
    finally:
        if forget is not None:
            forget()
        arguments.leave()
        for session in sessions:
            session.finish(error)


def _execute(script: Script) -> None:
    # As `python` does: the first place to import from is the script's folder, or the working directory for `-m`.
    if not sys.flags.safe_path and sys.path:
        sys.path[0] = str(Path.cwd()) if script.is_module else str(Path(script.target).resolve().parent)
    sys.argv[:] = [script.target, *script.args]
    path = Path(script.target)
    if script.is_module:
        runpy.run_module(script.target, run_name="__main__", alter_sys=True)
    elif path.is_file() and path.suffix != ".pyc" and not zipfile.is_zipfile(path):
        _execute_file(os.path.abspath(path))  # noqa: PTH100  # links stay as they are
    else:
        if not sys.flags.safe_path and sys.path:
            del sys.path[0]  # a folder or archive is itself the first place, and `runpy` says so
        runpy.run_path(script.target, run_name="__main__")


def _execute_file(path: str) -> None:
    """As `runpy.run_path` does, which gives the script another `sys.argv[0]` and takes its module away at the end.

    Children that are spawned find the script by the module's `__file__`.
    """
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = ModuleType("__main__")
    module.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __loader__=SourceFileLoader("__main__", path),
        __cached__=None,
        __annotations__={},
    )
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


class _Trimming:
    """The hook for exceptions that nobody caught, without our frames."""

    def __init__(self, hook: Any) -> None:
        self._hook = hook

    def __call__(self, kind: type[BaseException], value: BaseException, _: TracebackType | None) -> None:
        trace = without_ours(value)
        self._hook(kind, value.with_traceback(trace), trace)
