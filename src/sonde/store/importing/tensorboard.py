"""A folder of TensorBoard's event files as a log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sonde.core import strict_json
from sonde.core.errors import FormatError, RunNotFound
from sonde.store import opening
from sonde.store.importing import wire
from sonde.store.importing.event_files import Scalar, SessionStart, Text, events, first_time
from sonde.store.importing.foreign import Log, Logged, Restart

_FILES = "*tfevents*"
# Folders beside each other that are one run: what Keras, estimators and torch's add_scalars make.
_PARTS = frozenset({"train", "training", "val", "valid", "validation", "eval", "evaluation", "dev", "test"})


def read(source: str, run: str | None = None) -> Log:
    """The scalars of a folder, and what its hyper-parameters say.

    Files of one folder follow one another by the time of their first record; one that begins again at a step takes the
    place of what earlier files had of it and of later ones. Folders called `train`, `validation` and the like belong
    together, and so do those that `add_scalars` makes. Other folders are runs of their own.

    Args:
        source: The folder, or a single event file.
        run: Which of several runs in it: the path of its folder below `source`.

    Raises:
        RunNotFound: there is no event file, or there are several runs and none was chosen.
        FormatError: a file is damaged (while its entries are read).
    """
    root = Path(source)
    if root.is_file():
        return _log(root.name, root, {"": [root]})
    if not root.is_dir():
        raise RunNotFound(f"{root} does not exist; name the folder that TensorBoard is started with (--logdir).")
    if run is not None:
        root = root / run
    runs = _runs(root)
    if not runs:
        raise RunNotFound(f"{root} holds no event files (*tfevents*) of TensorBoard, nor does any folder in it.")
    if len(runs) > 1:
        names = ", ".join(str(path.relative_to(root)) for path in sorted(runs)[:8])
        more = f" and {len(runs) - 8} more" if len(runs) > 8 else ""
        raise RunNotFound(f"{root} holds {len(runs)} runs; choose one with --run: {names}{more}")
    ((folder, parts),) = runs.items()
    return _log(folder.resolve().name, root, parts)


def _runs(root: Path) -> dict[Path, dict[str, list[Path]]]:
    """The runs at or below a folder, each with its parts: files by the path of their folder in the run."""
    by_folder: dict[Path, list[Path]] = {}
    for file in opening.files(root, _FILES):
        by_folder.setdefault(file.parent, []).append(file)
    runs: dict[Path, dict[str, list[Path]]] = {}
    for folder, files in sorted(by_folder.items()):
        home = folder.parent if folder != root and folder.name.lower() in _PARTS else folder
        for parent in (home, *home.parents):
            if parent in runs and parent != folder:
                home = parent
                break
            if parent == root:
                break
        runs.setdefault(home, {})[folder.relative_to(home).as_posix().removeprefix(".")] = files
    return runs


def _log(name: str, root: Path, parts: dict[str, list[Path]]) -> Log:
    config: dict[str, Any] = {}
    newest = max(file.stat().st_mtime for files in parts.values() for file in files)
    return Log(name=name, entries=_entries(root, parts, config), config=config, time=newest)


def _entries(root: Path, parts: dict[str, list[Path]], config: dict[str, Any]) -> Iterator[Logged | Restart]:
    for part, files in parts.items():
        for file in sorted(files, key=lambda file: _began(root, file)):
            with opening.reading_below(root, file) as opened:
                for event in events(opened, file):
                    if isinstance(event, Scalar):
                        yield Logged(_name(part, event.tag), event.step, event.value, event.time)
                    elif isinstance(event, SessionStart):
                        if event.step > 0 and not part:
                            yield Restart(event.step)
                    else:
                        _configure(config, event)


def _began(root: Path, file: Path) -> tuple[float, str]:
    with opening.reading_below(root, file) as opened:
        return first_time(opened, file), file.name


def _name(part: str, tag: str) -> str:
    """The name of a series of a run's part.

    Torch's `add_scalars("Loss", {"train": …})` writes a series `Loss` into a folder `Loss_train`.

    Example:
        >>> _name("", "Loss/train"), _name("validation", "epoch_loss"), _name("Loss_val", "Loss")
        ('Loss/train', 'validation/epoch_loss', 'Loss/val')
    """
    stem = tag.replace("/", "_") + "_"
    if part.startswith(stem):
        return f"{tag}/{part.removeprefix(stem)}"
    return f"{part}/{tag}" if part else tag


def _configure(config: dict[str, Any], event: Text) -> None:
    try:
        if event.plugin == "hparams":
            config.update(_hparams(event.content))
            return
        value = strict_json.loads(event.content, bare=True)  # as Hugging Face's trainer logs its arguments
    except FormatError:
        return
    if isinstance(value, dict):
        config[event.tag.removesuffix("/text_summary")] = value


def _hparams(content: bytes) -> dict[str, Any]:
    # tensorboard/plugins/hparams/plugin_data.proto: session_start_info is field 3, its map of hparams field 1.
    found: dict[str, Any] = {}
    for start in wire.members(content, 3):
        for entry in wire.members(start, 1):
            # google.protobuf.Value: number 2, string 3, bool 4
            for field, value in wire.fields(wire.member(entry, 2) or b""):
                if field == 2 and isinstance(value, bytes):
                    found[wire.text(entry, 1)] = wire.double(value)
                elif field == 3 and isinstance(value, bytes):
                    found[wire.text(entry, 1)] = value.decode("utf-8", errors="replace")
                elif field == 4:
                    found[wire.text(entry, 1)] = bool(value)
    return found
