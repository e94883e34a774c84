import re
from pathlib import Path

from sonde.core.causes import Cause

VOCABULARY = """
lr-too-high · lr-too-low · lr-spike · warmup-too-short · schedule-decays-too-fast · schedule-misapplied · missing-lr-decay ·
vanishing-gradients · exploding-gradients · missing-clipping · clip-too-aggressive · clip-before-unscale · gain-drift ·
bad-initialisation · symmetric-initialisation · dead-units · saturated-units · activation-explosion · gradient-imbalance ·
weight-norm-jump · overfitting · missing-regularisation · underfitting · insufficient-capacity · weight-decay-too-strong ·
plateau · label-noise · no-learnable-signal · bad-batch · nonfinite-input · unnormalised-inputs · data-drift ·
disconnected-layer · parameter-not-in-optimizer · frozen-layer · missing-zero-grad · zero-grad-misplaced ·
accumulation-not-scaled · wrong-loss-reduction · double-softmax · eval-mode-in-training · train-mode-in-evaluation ·
train-eval-mismatch · batchnorm-small-batch · batch-too-small · batch-too-large · long-sequence · attention-logit-growth ·
attention-entropy-collapse · output-logit-drift · embedding-norm-growth · precision-overflow · precision-underflow ·
missing-loss-scaling · optimizer-state-lost · adam-epsilon-underflow · memory-leak · memory-near-limit · data-stall ·
straggler · slowdown · rank-divergence · nondeterminism · targets-not-shifted · data-not-shuffled · target-network-stale ·
state-reset
"""  # noqa: E501
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "findings.md"


def test_the_causes_are_exactly_the_vocabulary_of_the_design() -> None:
    words = re.findall(r"[a-z-]+", VOCABULARY)
    assert len(words) == 67
    assert [cause.value for cause in Cause] == words


def test_a_member_is_named_after_its_value() -> None:
    assert [cause.name for cause in Cause] == [cause.value.upper().replace("-", "_") for cause in Cause]


def test_every_cause_has_a_meaning_of_its_own_in_one_line() -> None:
    meanings = [cause.meaning for cause in Cause]
    assert len(set(meanings)) == len(meanings)
    for meaning in meanings:
        assert 20 < len(meaning) < 100
        assert meaning == meaning.strip(" .\n")
        assert "\n" not in meaning


def test_the_reference_page_lists_every_cause_with_its_meaning() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [row for row in listed if row[0] in list(Cause)] == [(cause.value, cause.meaning) for cause in Cause]
