import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sonde.core.errors import PluginError
from sonde.core.plugins import Door

GROUP = "sonde.test_encoders"
BUILTINS = {"json": "json:dumps", "repr": "builtins:repr"}


@dataclass(frozen=True)
class Site:
    """A folder of installed distributions that Python imports from."""

    folder: Path

    def install(self, name: str, entry_points: str, *, module: str = "", code: str = "", version: str = "1.0") -> None:
        if module:
            (self.folder / f"{module}.py").write_text(code, encoding="utf-8")
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entry_points}\n", encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield Site(tmp_path)
    for module in set(sys.modules) - before:
        del sys.modules[module]


def door(**changes: Any) -> Door:
    plain: dict[str, Any] = {"group": GROUP, "kind": "encoder", "builtins": BUILTINS, "accepts": callable}
    return Door(**(plain | changes))


def test_built_ins_come_through_the_door_without_any_third_party() -> None:
    assert door().names() == ("json", "repr")
    assert door().load("json")([None]) == "[null]"
    loaded = door().load_all()
    assert (dict(loaded.members), loaded.problems) == ({"json": door().load("json"), "repr": repr}, ())


def test_a_third_party_comes_through_the_same_door(site: Site) -> None:
    site.install(
        "acme-encoders",
        "upper = acme_encoders:encode",
        module="acme_encoders",
        code="def encode(value): return str(value).upper()",
    )
    assert door().names() == ("json", "repr", "upper")
    assert door().load("upper")("a") == "A"
    assert list(door().load_all().members) == ["json", "repr", "upper"]


def test_a_plug_in_of_another_group_stays_outside(site: Site) -> None:
    site.install("acme-encoders", "upper = builtins:repr")
    assert Door(group="sonde.test_decoders", kind="decoder", accepts=callable).names() == ()


def test_names_are_known_without_importing_anything(site: Site) -> None:
    site.install("acme-lazy", "lazy = acme_lazy:encode", module="acme_lazy", code="raise RuntimeError('imported')")
    assert "lazy" in door().names()
    assert "acme_lazy" not in sys.modules


@pytest.mark.parametrize(
    ("entry", "code", "complaint"),
    [
        (
            "acme_broken:encode",
            "import sonde_no_such_dependency",
            "ModuleNotFoundError.*sonde_no_such_dependency",
        ),
        ("acme_broken:encode", "1 / 0", "ZeroDivisionError"),
        ("acme_broken:encode", "def encode(:", "SyntaxError"),
        ("acme_broken:encode", "import sys; sys.exit('bye')", "SystemExit: bye"),
        ("acme_broken:encoder", "def encode(value): return ''", "AttributeError.*encoder"),
        ("acme_broken:encode", "encode = 3", "is no encoder but of type int"),
        ("acme_missing:encode", "", "ModuleNotFoundError.*acme_missing"),
        ("not an entry point", "", "does not load"),
    ],
)
def test_a_broken_third_party_is_reported_and_keeps_nobody_out(
    site: Site, entry: str, code: str, complaint: str
) -> None:
    site.install("acme-broken", f"bad = {entry}", module="acme_broken", code=code)
    site.install("zeta-encoders", "good = builtins:ascii")
    loaded = door().load_all()
    assert list(loaded.members) == ["good", "json", "repr"]
    (problem,) = loaded.problems
    assert isinstance(problem, PluginError)
    with pytest.raises(PluginError, match=complaint) as caught:
        door().load("bad")
    assert str(caught.value) == str(problem)
    assert f"the encoder 'bad' of acme-broken 1.0 ({GROUP}: bad = {entry})" in str(problem)
    assert "Update acme-broken 1.0, or uninstall it." in str(problem)


def test_a_check_that_fails_on_a_strange_object_counts_as_a_broken_plug_in(site: Site) -> None:
    site.install("acme-strange", "strange = sys:maxsize")
    loaded = door(accepts=lambda plugin: len(plugin.__name__) > 0).load_all()
    assert list(loaded.members) == ["json", "repr"]
    assert "AttributeError" in str(loaded.problems[0])


def test_a_built_in_wins_its_name_and_the_clash_is_reported(site: Site) -> None:
    site.install("acme-json", "json = builtins:ascii")
    assert door().names() == ("json", "repr")
    assert door().load("json")([None]) == "[null]"
    (problem,) = door().load_all().problems
    assert "'json' of acme-json 1.0" in str(problem)
    assert "hidden by that of Sonde, of the same name" in str(problem)


def test_of_two_third_parties_the_first_in_the_alphabet_wins_the_name(site: Site) -> None:
    site.install("zeta-encoders", "both = builtins:repr")
    site.install("acme-encoders", "both = builtins:ascii", version="2.0")
    assert door().load("both") is ascii
    (problem,) = door().load_all().problems
    assert "'both' of zeta-encoders 1.0" in str(problem)
    assert "hidden by that of acme-encoders 2.0" in str(problem)


def test_a_package_with_unreadable_entry_points_keeps_nobody_out(site: Site) -> None:
    site.install("acme-garbled", "this line is no entry point")
    site.install("zeta-encoders", "good = builtins:ascii")
    assert door().names() == ("good", "json", "repr")
    loaded = door().load_all()
    assert list(loaded.members) == ["good", "json", "repr"]
    assert "entry points of acme-garbled 1.0 cannot be read" in str(loaded.problems[0])


def test_leftovers_of_an_uninstalled_package_keep_nobody_out(site: Site) -> None:
    site.install("acme-leftover", "left = acme_leftover:encode")
    (site.folder / "acme_leftover-1.0.dist-info" / "METADATA").unlink()
    loaded = door().load_all()
    assert list(loaded.members) == ["json", "repr"]
    assert "'left' of a package without metadata" in str(loaded.problems[0])


def test_packages_without_metadata_are_not_taken_for_one_and_the_same(site: Site) -> None:
    site.install("acme-garbled", "this line is no entry point")
    for name in ("one", "two"):
        site.install(f"acme-{name}", f"{name} = builtins:ascii")
        (site.folder / f"acme_{name}-1.0.dist-info" / "METADATA").unlink()
    assert door().names() == ("json", "one", "repr", "two")


def test_of_two_versions_on_the_path_only_the_first_comes_in(
    site: Site, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("acme-garbled", "this line is no entry point")
    site.install("acme-encoders", "old = builtins:ascii")
    newer = Site(tmp_path_factory.mktemp("newer"))
    newer.install("acme-encoders", "new = builtins:ascii", version="2.0")
    monkeypatch.syspath_prepend(newer.folder)
    assert door().names() == ("json", "new", "repr")


def test_a_broken_built_in_is_reported_as_sondes_own() -> None:
    broken = door(builtins=BUILTINS | {"bad": "sonde_no_such_module:encode"})
    loaded = broken.load_all()
    assert list(loaded.members) == ["json", "repr"]
    assert "'bad' of Sonde" in str(loaded.problems[0])


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(PluginError, match=r"no encoder 'jsno'; did you mean 'json'\? Known: json, repr\."):
        door().load("jsno")


def test_an_unknown_name_like_no_other_is_answered_with_all_of_them() -> None:
    with pytest.raises(PluginError, match=r"no encoder 'xyz'; Known: json, repr\."):
        door().load("xyz")
    with pytest.raises(PluginError, match="Known: none"):
        door(builtins={}).load("xyz")


def test_opening_the_door_in_a_fresh_process_finds_what_is_on_its_path(site: Site) -> None:
    site.install("acme-encoders", "upper = builtins:ascii")
    program = (
        f"from sonde.core.plugins import Door\nprint(Door(group={GROUP!r}, kind='encoder', accepts=callable).names())"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(site.folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.strip() == "('upper',)"
