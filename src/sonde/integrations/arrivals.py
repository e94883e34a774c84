"""Being told when a package has been imported, without importing it."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, then: Callable[[], None]) -> Callable[[], None]:
    """Call `then` once the package has been imported by whoever needs it; at once where it is there already.

    A script may set environment variables before it imports torch (`OMP_NUM_THREADS`, `CUDA_VISIBLE_DEVICES`): had we
    imported it before, they would have no effect, and numbers would differ.

    Args:
        name: Of a top-level package.
        then: Must not raise.

    Returns:
        What to call to be told no more.
    """
    if name in sys.modules:
        then()
        return lambda: None
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    return finder.leave


class _Finder(MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        """On the loader itself: many only ask whether the package could be imported, and never do."""
        if not hasattr(loader, "exec_module"):
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # what is left is the loader's own
            self.leave()
            loader.exec_module(module)
            self._then()

        loader.exec_module = exec_module
