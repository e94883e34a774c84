"""The tool that pins what trainings record finds what has changed, and nothing else."""

import json
from pathlib import Path

import numpy as np
import pytest

from .__main__ import main

SOME = ["planted_nan", "tied"]  # with findings made while it trains, and without


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    assert main(["record", str(folder), *SOME]) == 0
    return folder


def test_trainings_record_the_same_bits_twice(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(recorded), *SOME]) == 0
    assert capsys.readouterr().out == "planted_nan: equal\ntied: equal\nall 2 are equal\n"


def test_one_changed_value_is_named_with_its_step(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded / "tied.json"
    rows = json.loads(path.read_text())
    loss = rows["series"]["loss"]
    loss["bits"][6] += 1
    now, before = (np.uint32(bits).view(np.float32) for bits in (loss["bits"][6] - 1, loss["bits"][6]))
    rows["series"]["loss/gone"] = {"steps": [4], "bits": [0]}
    del rows["series"]["loss/ema"]
    rows["events"].append({"kind": "gone", "step": 3, "data": {}})
    changed = recorded / "changed"
    changed.mkdir()
    (changed / path.name).write_text(json.dumps(rows))

    assert main(["compare", str(changed), "tied"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "tied: 4 differences"
    assert said[1] == "  loss/gone is missing: had 1 values from step 4 on"
    assert said[2] == "  loss/ema is new: has 30 values from step 1 on"
    assert said[3].startswith(f"  loss differs: at step 7 it is {now:.9g} (0x")
    assert f"was {before:.9g} (0x" in said[3]
    assert said[3].endswith("(1 of 30 differ)")
    assert said[4].startswith('  events: 1 missing, the first is {"kind": "gone"')


def test_a_folder_without_the_recording_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["compare", str(tmp_path), "tied"])
    assert refused.value.code == 2
    assert "holds nothing of tied: record them first" in capsys.readouterr().err
