"""What `sonde diagnose` says of forty kept trainings, and that no two of its proposals contradict each other."""

from pathlib import Path

import pytest
from tests.golden.diagnoses.__main__ import FOLDER, ROWS, TRAININGS, diagnosed
from tests.golden.diagnoses.keeping import unpack

import sonde
from sonde.core.remedies import Action

OPPOSITES = (
    ({Action.LOWER_LR, Action.DECAY_LR}, {Action.RAISE_LR, Action.SLOWER_SCHEDULE}),
    ({Action.BIGGER_BATCH, Action.ACCUMULATE_GRADIENTS}, {Action.SMALLER_BATCH}),
    (
        {Action.ADD_DROPOUT, Action.ADD_WEIGHT_DECAY, Action.LESS_CAPACITY},
        {Action.LESS_DROPOUT, Action.LOWER_WEIGHT_DECAY, Action.MORE_CAPACITY},
    ),
    ({Action.TRAIN_LONGER}, {Action.EARLY_STOP}),
)
"""Of each pair of sets, no two may be proposed for one training."""


@pytest.fixture(scope="module", params=TRAININGS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that was kept, in a folder named `run`."""
    folder = tmp_path_factory.mktemp(str(request.param)) / "run"
    unpack(ROWS / f"{request.param}.xz", folder)
    return folder


def test_a_diagnosis_reads_as_when_it_was_last_read(run: Path, request: pytest.FixtureRequest) -> None:
    """Where it should read otherwise now: `python -m tests.golden.diagnoses`, and read the difference."""
    name = request.node.callspec.params["run"]
    assert diagnosed(run) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_no_two_proposals_contradict_each_other_and_each_cause_is_told_once(run: Path) -> None:
    diagnosis = sonde.diagnose(run)
    proposed = {remedy.action for finding in diagnosis for remedy in finding.remedies}
    for one, other in OPPOSITES:
        assert not (proposed & one and proposed & other), f"{proposed & one} against {proposed & other}"
    causes = [group.cause for group in diagnosis.groups]
    assert len(causes) == len(set(causes))
    texts = [remedy.text for group in diagnosis.groups for remedy in group.remedies]
    assert len(texts) == len(set(texts))
    assert "[opt-in]" not in str(diagnosis)  # Sonde can carry out nothing by itself yet


def test_the_texts_are_those_of_the_trainings() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(TRAININGS)
    assert {path.stem for path in ROWS.glob("*.xz")} == set(TRAININGS)
    assert sum(path.stat().st_size for path in ROWS.iterdir()) < 3_000_000
