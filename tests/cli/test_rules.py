"""`sonde rules`."""

import json
from pathlib import Path

import pytest

from sonde.cli.main import main
from sonde.rules.alarm_precision import PRECISION
from sonde.rules.catalogue import all_rules
from sonde.rules.configuring import settings_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_rule_is_listed_with_its_tier(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "code"
    assert [line.split()[:3] for line in lines] == [[rule.code, rule.name, "stable"] for rule in all_rules()]
    for line, rule in zip(lines, all_rules(), strict=True):
        right, num = PRECISION.get(rule.code, (0, 0))
        assert line.endswith(f"{right} of {num}" if num else "not measured")


def test_what_was_measured_and_what_is_configured_here_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = {"LOS002": (14, 20), "LOS001": (18, 20)}
    monkeypatch.setattr("sonde.rules.tiers.PRECISION", measured)
    monkeypatch.setattr("sonde.rules.alarm_precision.PRECISION", measured)
    (folder / "sonde.toml").write_text('[rules]\nLOS001.tier = "preview"\nLOS002.warning = 9.0\nGEN001 = false\n')
    assert main(["rules", "LOS001", "loss-spike", "GEN001", "--verbose"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["LOS001", "non-finite-loss", "preview", "18", "of", "20"]
    assert ["LOS002", "loss-spike", "preview", "14", "of", "20"] in lines
    assert ["warning", "=", "9.0"] in lines
    assert ["GEN001", "overfitting", "off", "not", "measured"] in lines


def test_json_has_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["not_available"]) == (1, [])
    assert [rule["code"] for rule in told["rules"]] == [rule.code for rule in all_rules()]
    for rule, kind in zip(told["rules"], all_rules(), strict=True):
        assert rule["on"] is True
        assert (rule["tier"], rule["package"]) == ("stable", None)
        assert rule["settings"] == json.loads(json.dumps(settings_of(kind)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["LOS999"], "there is no rule `LOS999`; did you mean `LOS00"),
        (["loss-spyke"], "there is no rule `loss-spyke`; did you mean `loss-spike`?"),
        (["zzzz"], "there is no rule `zzzz`; `sonde rules` lists them all."),
        (["--tier"], "No such option: --tier"),
    ],
)
def test_wrong_arguments_are_named(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", *words]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""
