"""What a script was told: the arguments that argparse read for it, or the configuration that Hydra composed."""

import enum
import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, final

from sonde.core.strict_json import Json
from sonde.integrations.arrivals import when_imported

_MOST_MEMBERS = 200
_MOST_CHARS = 500
_MOST_DEPTH = 6
_BY_NAME = ("torch.device", "torch.dtype")  # whose text is short and says it


@final
class Arguments:
    """Listens where a script's arguments are read, and knows them from then on.

    Of argparse those calls count that read the words of the command line, the script's or those of a library that reads
    them for it; of Hydra the configuration of the job, as it is before it is resolved: resolving may call anything.
    """

    def __init__(self) -> None:
        self._namespaces: list[Any] = []
        self._job: Any = None
        self._undo: list[Callable[[], None]] = []

    def listen(self) -> None:
        """Begin; neither argparse nor Hydra is imported for it."""
        self._undo.append(when_imported("argparse", self._follow_argparse))
        self._undo.append(when_imported("hydra.core.utils", self._follow_hydra))

    def leave(self) -> None:
        """Everything is as it was."""
        while self._undo:
            self._undo.pop()()

    def read(self) -> dict[str, Json]:
        """All that is known by now, as JSON can say it; a script may have changed it since it was read.

        Modules, tensors and other objects are left out: their text may be long, and making it may do anything.
        """
        found: dict[str, Json] = {}
        for namespace in self._namespaces:
            found.update(_members(vars(namespace)))
        if self._job is not None:
            try:
                omegaconf: Any = sys.modules["omegaconf"]  # which has made it
                whole = omegaconf.OmegaConf.to_container(self._job, resolve=False)
                found.update(_members({key: value for key, value in whole.items() if key != "hydra"}))
            except Exception:  # another version, or another kind of configuration
                return found
        return found

    def _follow_argparse(self) -> None:
        import argparse

        original = argparse.ArgumentParser.parse_known_args

        @functools.wraps(original)
        def parse_known_args(parser: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(parser, *args, **kwargs)
            try:
                words = args[0] if args else kwargs.get("args")
                if words is None or list(words) == sys.argv[1:]:
                    self._namespaces.append(result[0])
            except Exception:  # a parser of its own kind
                return result
            return result

        self._replace(argparse.ArgumentParser, "parse_known_args", parse_known_args)

    def _follow_hydra(self) -> None:
        utils = sys.modules["hydra.core.utils"]
        original = getattr(utils, "run_job", None)
        if original is None:
            return

        @functools.wraps(original)
        def run_job(*args: Any, **kwargs: Any) -> Any:
            self._job = args[1] if len(args) > 1 else kwargs.get("config")
            return original(*args, **kwargs)

        self._replace(utils, "run_job", run_job)

    def _replace(self, owner: Any, name: str, function: Any) -> None:
        original = getattr(owner, name)
        setattr(owner, name, function)

        def undo() -> None:
            if getattr(owner, name) is function:  # else somebody has wrapped ours
                setattr(owner, name, original)

        self._undo.append(undo)


def _members(given: Mapping[Any, Any], depth: int = 0) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in list(given.items())[:_MOST_MEMBERS]:
        is_said, said = _said(value, depth)
        if is_said:
            found[str(key)[:_MOST_CHARS]] = said
    return found


def _said(value: Any, depth: int) -> tuple[bool, Json]:
    """Whether a value is a setting, and the setting."""
    if value is None or type(value) in (bool, int, float):
        return True, value
    if isinstance(value, str):
        return True, str(value)[:_MOST_CHARS]
    if isinstance(value, enum.Enum):
        return True, value.name
    if isinstance(value, PurePath) or f"{type(value).__module__}.{type(value).__qualname__}" in _BY_NAME:
        return True, str(value)[:_MOST_CHARS]
    if depth < _MOST_DEPTH:
        if isinstance(value, dict):
            return True, _members(value, depth + 1)
        if isinstance(value, list | tuple | set | frozenset):
            members = (_said(item, depth + 1) for item in list(value)[:_MOST_MEMBERS])
            return True, [said for is_said, said in members if is_said]
    if callable(value) and hasattr(value, "__qualname__"):
        return True, str(value.__qualname__)
    return False, None
