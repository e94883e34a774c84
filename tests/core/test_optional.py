import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonde.core.errors import MissingExtra
from sonde.core.optional import available, require


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages that Python imports from."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for module in set(sys.modules) - before:
        del sys.modules[module]


def test_require_gives_the_module_itself() -> None:
    assert require("json.decoder", "export") is sys.modules["json.decoder"]


def test_a_missing_package_is_reported_with_its_install_command() -> None:
    with pytest.raises(MissingExtra) as caught:
        require("sonde_no_such_package.sub", "tensorboard")
    assert str(caught.value) == (
        "Sonde's tensorboard needs sonde_no_such_package, which is not installed: pip install 'sonde[tensorboard]'"
    )
    assert caught.value.name == "sonde_no_such_package.sub"


def test_a_missing_extra_is_an_import_error_too() -> None:
    with pytest.raises(ImportError):
        require("sonde_no_such_package", "wandb")


def test_a_package_that_lacks_something_itself_is_not_called_missing(site: Path) -> None:
    (site / "half_installed.py").write_text("import sonde_no_such_dependency\n")
    with pytest.raises(MissingExtra, match=r"half_installed, which is installed but .*sonde_no_such_dependency"):
        require("half_installed", "mlflow")


def test_a_package_too_old_to_have_the_module_is_not_called_missing(site: Path) -> None:
    (site / "old_package").mkdir()
    (site / "old_package" / "__init__.py").touch()
    with pytest.raises(MissingExtra, match=r"old_package\.new, which is installed but .*--upgrade 'sonde\[mlflow\]'"):
        require("old_package.new", "mlflow")


def test_a_fault_in_a_package_is_not_hidden(site: Path) -> None:
    (site / "faulty.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        require("faulty", "mlflow")


def test_available_finds_a_module_without_importing_it(site: Path) -> None:
    (site / "explosive.py").write_text("raise RuntimeError('imported')\n")
    assert available("explosive")
    assert "explosive" not in sys.modules


@pytest.mark.parametrize(
    "module",
    ["sonde_no_such_package", "sonde_no_such_package.sub.sub", "json.no_such_module", "json.decoder.sub", ""],
)
def test_available_is_false_for_what_is_not_there(module: str) -> None:
    assert not available(module)


def test_available_is_true_for_what_is_imported_already() -> None:
    assert available("json")
    assert available("__main__")


def test_available_is_false_below_a_broken_parent(site: Path) -> None:
    (site / "broken_parent").mkdir()
    (site / "broken_parent" / "__init__.py").write_text("import sonde_no_such_dependency\n")
    (site / "broken_parent" / "child.py").touch()
    assert not available("broken_parent.child")


def test_available_is_false_for_a_forbidden_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sonde_forbidden", None)
    assert not available("sonde_forbidden")
