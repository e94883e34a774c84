"""The catalogue: every rule file is in it, and rules of other packages come in by the same door."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sonde.rules
from sonde.rules.catalogue import DOOR, all_rules, load, own_rules, rule_of

RULE = """
from dataclasses import dataclass
from sonde.rules.rule import Cause, For


@dataclass(frozen=True, kw_only=True)
class Mine:
    code = "ABC001"
    name = "mine"
    needs = ("loss",)
    points_to = {Cause.LR_TOO_HIGH: For()}
    quiet_steps = 100
    least: float = 1.0

    def init(self):
        return 0

    def step(self, state, look):
        return state + 1, ()
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package with rules where Python imports from, as pip does."""
    all_rules()  # what is cached is without the package
    put_there = []
    monkeypatch.syspath_prepend(tmp_path)

    def put(module: str, code: str, *entries: str, version: str = "1.0") -> None:
        put_there.append(module)
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
        info = tmp_path / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text("[sonde.rules]\n" + "\n".join(entries) + "\n")

    yield put
    for name in put_there:
        sys.modules.pop(name, None)


def test_the_catalogue_has_every_rule_file_once() -> None:
    (folder,) = sonde.rules.__path__
    files = {
        ".".join(("sonde.rules", *path.relative_to(folder).with_suffix("").parts))
        for path in Path(folder).glob("*/*.py")
        if 'code: ClassVar[str] = "' in path.read_text(encoding="utf-8")
    }
    named = [place.partition(":")[0] for place in DOOR.builtins.values()]
    assert sorted(named) == sorted(files)
    assert list(DOOR.builtins) == sorted(DOOR.builtins) == [rule.code for rule in own_rules()]


def test_without_other_packages_every_rule_is_sondes_own() -> None:
    found = load()
    assert (found.rules, dict(found.owners), found.problems) == (own_rules(), {}, ())
    assert len(found.rules) == len(DOOR.builtins)
    assert all_rules() is all_rules()
    assert rule_of("LOS001") in own_rules()
    assert rule_of("XYZ001") is None


def test_a_rule_of_another_package_stands_among_the_others_with_its_owner(install: Install) -> None:
    install("acme_rules", RULE, "ABC001 = acme_rules:Mine", version="2.1")
    found = load()
    assert found.rules[0].__name__ == "Mine"
    assert found.rules[1:] == own_rules()
    assert (dict(found.owners), found.problems) == ({"ABC001": ("acme_rules", "2.1")}, ())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("from dataclasses", "import nowhere\nfrom dataclasses", "ModuleNotFoundError: No module named 'nowhere'"),
        ("class Mine", "class Yours", "has no attribute 'Mine'"),
        ("@dataclass(frozen=True, kw_only=True)\n", "", "a rule must be a dataclass"),
        ('"ABC001"', '"abc1"', "`Mine.code` must be three capital letters and three digits"),
        ('"ABC001"', '"ABC002"', "has the code 'ABC002': its entry point must have that name"),
        ('"mine"', '"My rule"', "`Mine.name` must be lower-case words"),
        ('"mine"', '"loss-spike"', "is called 'loss-spike', as LOS002 is: rename it"),
        ('("loss",)', '"loss"', "`Mine.needs` must be a tuple of tags"),
        ("quiet_steps = 100", 'quiet_steps, reads = 100, "loss"', "`Mine.reads` must be a tuple of tags"),
        ("Cause.LR_TOO_HIGH", "'bad-luck'", "`Mine.points_to` names 'bad-luck', which is no member of `Cause`"),
        ("For()", "3", "`Mine.points_to` must be `For(why)` or `Against(why)`"),
        ("quiet_steps = 100", "", "`Mine` has no `quiet_steps`"),
        ("least: float", "least: str", "the setting `Mine.least` must be a bool, int, float or tuple of these"),
        ("return 0", "1 / 0", "`Mine().init()` fails: ZeroDivisionError"),
        ("def step", "def stop", "`Mine.step` must be a method"),
    ],
)
def test_a_broken_rule_of_another_package_is_said_and_keeps_nobody_out(
    install: Install, old: str, new: str, said: str
) -> None:
    assert old in RULE
    install("acme_rules", RULE.replace(old, new, 1), "ABC001 = acme_rules:Mine")
    install("good_rules", RULE.replace("ABC001", "GUD001").replace('"mine"', '"good"'), "GUD001 = good_rules:Mine")
    found = load()
    assert [rule for rule in found.rules if rule.code != "GUD001"] == list(own_rules())
    assert list(found.owners) == ["GUD001"]
    (problem,) = found.problems
    assert said in str(problem)
    assert "acme_rules 1.0" in str(problem)


def test_a_code_that_is_taken_stays_with_the_first(install: Install) -> None:
    code = RULE.replace("ABC001", "LOS001")
    install("acme_rules", code, "LOS001 = acme_rules:Mine")
    found = load()
    assert found.rules == own_rules()
    (problem,) = found.problems
    assert "the rule 'LOS001' of acme_rules 1.0" in str(problem)
    assert "hidden by that of Sonde" in str(problem)
    assert "acme_rules" not in sys.modules, "it need not be imported"


def test_importing_the_doctor_imports_no_rule_of_others(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, sonde.monitor.watch; print(*sys.modules)"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert "sonde.rules.losses.loss_stuck" not in done.stdout.split()
