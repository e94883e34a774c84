"""Optional packages: imported where they are needed, with an error that says how to install them."""

import importlib
import importlib.util
import sys
from types import ModuleType

from sonde.core.errors import MissingExtra


def require(module: str, extra: str) -> ModuleType:
    """The module, imported.

    Args:
        module: Its full name, such as "tensorboard.compat".
        extra: The extra of Sonde that brings it, named after what it gives.

    Raises:
        MissingExtra: it is not installed, or it is and fails to import something else; the message has the
            install command.

    Example:
        >>> require("json", "export").loads("[1]")
        [1]
        >>> try:
        ...     require("no_such_package", "export")
        ... except MissingExtra as error:
        ...     print(error)
        Sonde's export needs no_such_package, which is not installed: pip install 'sonde[export]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            trouble = f"{package}, which is not installed: pip install 'sonde[{extra}]'"
        else:
            trouble = (
                f"{module}, which is installed but does not import ({error}): pip install --upgrade 'sonde[{extra}]'"
            )
        raise MissingExtra(f"Sonde's {extra} needs {trouble}", name=module) from error


def require_torch(what: str) -> None:
    """Say what to install where PyTorch is not.

    Args:
        what: What needs it, the beginning of the sentence.

    Raises:
        MissingExtra: it is not installed.
    """
    if not available("torch"):
        raise MissingExtra(
            f"{what} needs PyTorch, which is not installed: pip install 'sonde[torch]', or as pytorch.org says for "
            "your GPU. Reading, diagnosing and reporting runs need none.",
            name="torch",
        )


def available(module: str) -> bool:
    """Whether the module can be found, without importing it.

    The parents of a dotted name are imported, as Python must. What is found may still fail to import:
    `require` tells.

    Example:
        >>> available("json"), available("no_such_package"), available("no_such_package.sub")
        (True, False, False)
    """
    if module in sys.modules:
        return sys.modules[module] is not None  # None is Python's way to forbid an import
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent is missing, broken or no package; an empty name
        return False
