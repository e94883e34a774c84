"""What is proposed for a cause, in which order and with which values."""

import math
from dataclasses import replace

import pytest

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Finding, Severity
from sonde.core.remedies import Action, Remedy
from sonde.diagnosis.remedies import remedies_for
from sonde.rules.history.run_summary import RunSummary

FINDING = Finding(
    code="ATT003",
    name="output-logits-drift",
    severity=Severity.WARNING,
    first_step=2,
    last_step=193,
    open=True,
    message="log Z of the output logits moved from 3.47 to 24.3 since it was first measured",
    evidence=(Evidence(tag="logits/log_z", step=193, value=24.3, expected=3.47),),
)


@pytest.mark.parametrize("cause", Cause)
def test_remedies_have_values_whatever_is_known_of_the_training(cause: Cause) -> None:
    rich = RunSummary(
        step=300, lr=1e-3, lr_peak=3e-3, ratio=1e-4, ratio_peak=0.2, grad_median=2.0, grad_start=1.0, loss=1.0
    )
    for run in (RunSummary(), rich, RunSummary(ratio=0.0, ratio_peak=0.0, grad_median=0.0, grad_start=math.inf)):
        for remedy in remedies_for(cause, run, FINDING):
            assert remedy.text
            assert all(value != 0 for value in remedy.args.values())


def test_a_rate_too_high_is_lowered_until_the_first_update_is_in_the_middle_of_the_usual_range() -> None:
    def factor(**known: float) -> object:
        return remedies_for(Cause.LR_TOO_HIGH, RunSummary(**known))[0].args["factor"]  # type: ignore[arg-type]

    assert factor(step=300, ratio_start=0.1, ratio_peak=0.9) == 0.05
    assert factor(step=5_000, ratio_start=0.1, ratio_peak=50.0) == 0.05
    assert factor(step=300, ratio_start=0.011) == 0.3
    assert factor(step=300, ratio_start=2.5) == 0.002
    assert factor(step=300, ratio_start=900.0) == 0.001


def test_a_rate_that_became_too_high_is_lowered_by_the_largest_update_that_is_no_explosion() -> None:
    def factor(**known: float) -> object:
        known = {"ratio_start": 0.005, **known}
        return remedies_for(Cause.LR_TOO_HIGH, RunSummary(**known))[0].args["factor"]  # type: ignore[arg-type]

    assert factor(step=300, ratio_peak=0.2) == 0.05
    assert factor(step=300, ratio_peak=0.02) == 0.3
    assert factor(step=300, ratio_peak=0.9) == 0.01
    assert factor(step=300, ratio_peak=50.0) == 0.1, "the size of an explosion says nothing of the rate"
    assert factor() == 0.1
    assert factor(ratio_start=math.nan) == 0.1


def test_a_rate_too_low_is_raised_towards_three_times_the_usual_updates_and_never_by_more_than_five() -> None:
    def factor(**known: float) -> object:
        return remedies_for(Cause.LR_TOO_LOW, RunSummary(**known))[0].args["factor"]  # type: ignore[arg-type]

    assert factor(step=300, ratio=1e-4) == 5.0
    assert factor(step=300, ratio=1e-9) == 5.0
    assert factor(step=300, ratio=7.5e-3) == 4.0
    assert factor(step=5_000, ratio=1e-4) == 5.0
    assert factor() == 5.0


def test_a_peak_that_was_too_low_is_raised_although_its_schedule_has_ended() -> None:
    ended = RunSummary(step=300, lr=1e-5, lr_peak=1e-3, ratio=1e-7)
    (raised,) = remedies_for(Cause.LR_TOO_LOW, ended._replace(ratio_peak=1e-4))
    assert raised.args == {"factor": 5.0}
    assert raised.text.startswith("raise the peak learning rate from 0.001 to 0.005, and again")
    assert remedies_for(Cause.LR_TOO_LOW, ended._replace(ratio_peak=8e-3))[0].args == {"factor": 4.0}
    assert remedies_for(Cause.LR_TOO_LOW, ended._replace(ratio_peak=0.05)) == []


def test_no_remedy_takes_its_value_from_what_was_not_measured_or_is_not_there() -> None:
    def actions(cause: Cause, run: RunSummary, *, is_fp16: bool | None = None) -> list[Action]:
        return [remedy.action for remedy in remedies_for(cause, run, is_fp16=is_fp16)]

    for cause in Cause:  # as of an import without gradients
        assert Action.CLIP not in actions(cause, RunSummary(lr=0.1))
        assert Action.USE_BF16 not in actions(cause, RunSummary(), is_fp16=False)
    assert actions(Cause.PRECISION_OVERFLOW, RunSummary(), is_fp16=True)[0] is Action.USE_BF16
    assert actions(Cause.LR_TOO_LOW, RunSummary(lr=1e-3, lr_peak=1e-3)) == [Action.RAISE_LR]
    assert actions(Cause.LR_TOO_LOW, RunSummary(lr=1e-5, lr_peak=1e-3)) == []  # a schedule's end


def test_gradients_that_explode_from_the_start_are_a_matter_of_initialisation_later_ones_of_clipping() -> None:
    def first(**norms: float) -> Remedy:
        return remedies_for(Cause.EXPLODING_GRADIENTS, RunSummary(**norms))[0]  # type: ignore[arg-type]

    assert first(grad_start=200.0, grad_median=5.0, grad_norm=3.0).action is Action.REINITIALISE
    assert first(grad_start=2.0, grad_median=500.0, grad_norm=900.0).args == {"max_norm": 2.0}
    for latest in (900.0, math.inf, math.nan):
        assert first(grad_start=2.0, grad_median=1.0, grad_norm=latest).args == {"max_norm": 1.0}
    assert first().action is Action.LOWER_LR, "a clip has no value where no norm is known"


@pytest.mark.parametrize("cause", [Cause.DEAD_UNITS, Cause.SATURATED_UNITS, Cause.EXPLODING_GRADIENTS])
def test_what_a_first_step_as_large_as_the_weights_has_done_is_undone_by_smaller_ones(cause: Cause) -> None:
    def actions(ratio: float) -> list[Action]:
        run = RunSummary(ratio_start=ratio, ratio_peak=ratio, grad_median=2.0)
        return [remedy.action for remedy in remedies_for(cause, run)]

    assert actions(0.5)[0] is Action.LOWER_LR
    assert actions(0.5).count(Action.LOWER_LR) == 1
    assert actions(0.2)[0] is not Action.LOWER_LR
    assert actions(math.nan) == actions(0.2)


def test_weights_that_look_drawn_too_large_once_steps_have_thrown_them_away_need_smaller_steps() -> None:
    thrown = RunSummary(loss_first=1.1, loss_start=370.0, trivial=1.1, ratio_start=0.13, ratio_peak=0.13)

    def first(**changes: float) -> Remedy:
        return remedies_for(Cause.BAD_INITIALISATION, thrown._replace(**changes))[0]  # type: ignore[arg-type]

    assert first().args == first(trivial=math.nan).args == {"factor": 0.04}
    for drawn_so in (
        {"loss_first": 250.0},
        {"loss_first": 30.0, "loss_start": 4e11},  # far above guessing before any step
        {"loss_first": -3.0},  # of which no share says anything
        {"ratio_start": math.nan},
        {"ratio_start": 0.005},
    ):
        assert first(**drawn_so).action is Action.REINITIALISE


def test_weights_that_jumped_are_no_matter_of_smaller_steps() -> None:
    remedies = remedies_for(Cause.WEIGHT_NORM_JUMP, RunSummary(lr=0.1, grad_median=2.0, grad_start=1.0))
    assert [remedy.action for remedy in remedies] == [Action.FIX_LOOP, Action.CLIP]


def test_gradients_that_explode_behind_weights_that_grow_all_the_time_are_a_matter_of_weight_decay() -> None:
    growth = replace(FINDING, code="WGT007", name="weights-compound")
    first = remedies_for(Cause.EXPLODING_GRADIENTS, RunSummary(grad_start=2.0, grad_median=500.0), growth)[0]
    assert first.action is Action.ADD_WEIGHT_DECAY


@pytest.mark.parametrize(
    ("known", "decay", "text"),
    [
        ({"lr_peak": 5e-3, "step": 300}, 0.1, "set `weight_decay` to 0.1"),
        ({"lr_peak": 0.1, "step": 1_000}, 0.01, "set `weight_decay` to 0.01"),
        ({"lr_peak": 0.1, "step": 50_000}, 2e-4, "set `weight_decay` to 0.0002"),
        ({"lr_peak": 0.1, "step": 10**6}, 1e-4, "set `weight_decay` to 0.0001"),
        ({"lr_peak": 0.1, "step": 1_000, "weight_decay": 1e-4}, 0.01, "raise `weight_decay` from 0.0001 to 0.01"),
        ({"lr_peak": 3e-4, "step": 10_000, "weight_decay": 0.2}, 0.6, "raise `weight_decay` from 0.2 to 0.6"),
        ({}, 0.01, "set `weight_decay` to 0.01"),
    ],
)
def test_weights_forget_over_as_many_steps_as_were_trained(known: dict[str, float], decay: float, text: str) -> None:
    first = remedies_for(Cause.MISSING_REGULARISATION, RunSummary(**known))[0]  # type: ignore[arg-type]
    assert first.args == {"weight_decay": pytest.approx(decay)}
    assert first.text == text


def test_a_warm_up_lasts_until_the_running_squares_have_settled() -> None:
    def steps(**known: float) -> object:
        return remedies_for(Cause.WARMUP_TOO_SHORT, RunSummary(**known))[0].args["steps"]  # type: ignore[arg-type]

    assert steps(step=100_000, beta2=0.999) == 2_000
    assert steps(step=100_000, beta2=0.99) == 200
    assert steps(step=100_000, beta2=0.95) == 100
    assert steps(step=100_000) == 500


def test_where_activations_grow_with_depth_normalisation_comes_before_drawing_anew() -> None:
    def first(tag: str, last: float, at_first: float) -> Action:
        evidence = Evidence(tag=tag, step=20, value=last, expected=at_first)
        depth = replace(FINDING, code="ACT005", name="variance-with-depth", evidence=(evidence,))
        return remedies_for(Cause.BAD_INITIALISATION, RunSummary(), depth)[0].action

    assert first("act/rms@blocks.8", 300.0, 0.6) is Action.ADD_LAYERNORM
    assert first("act/rms@blocks.8", 1e-5, 0.6) is Action.REINITIALISE
    assert first("grad/rms@8.bias", 0.01, 3.0) is Action.ADD_LAYERNORM
    assert first("grad/rms@8.bias", 3.0, 0.01) is Action.REINITIALISE
    assert remedies_for(Cause.BAD_INITIALISATION, RunSummary(), FINDING)[0].action is Action.REINITIALISE


def test_batch_norm_gets_sixteen_examples_before_it_gives_way_to_another_norm() -> None:
    def first(batch: float) -> Remedy:
        return remedies_for(Cause.BATCHNORM_SMALL_BATCH, RunSummary(batch=batch))[0]

    assert first(2.0).action is Action.BIGGER_BATCH
    assert first(2.0).args == {"factor": 8}
    assert "from 2 to 16 examples" in first(2.0).text
    assert first(3.0).args == {"factor": 6}
    assert first(64.0).args == {"factor": 2}, "few values a channel by the shape of its input"
    assert first(math.nan).args == {"factor": 8}


def test_batches_are_named_by_their_size_where_that_is_known() -> None:
    def text(cause: Cause, batch: float) -> str:
        return remedies_for(cause, RunSummary(lr=0.02, batch=batch))[0].text

    assert text(Cause.BATCH_TOO_SMALL, 2.0).startswith("make the batch eight times as large (from 2 to 16 examples)")
    assert text(Cause.BATCH_TOO_SMALL, math.nan).startswith("make the batch eight times as large, or")
    assert text(Cause.BATCH_TOO_LARGE, 512.0) == "make the batch an eighth as large (from 512 to 64 examples)"
    assert text(Cause.BATCH_TOO_LARGE, math.nan) == "keep the batch, and raise the learning rate from 0.02 to 0.1"


def test_the_rate_of_a_summed_loss_is_divided_by_the_batch() -> None:
    def factor(batch: float) -> object:
        return remedies_for(Cause.WRONG_LOSS_REDUCTION, RunSummary(batch=batch))[1].args["factor"]

    assert factor(50.0) == 0.02
    assert factor(math.nan) == 0.1


def test_embeddings_that_grow_get_a_lower_rate_of_their_own() -> None:
    growth = replace(FINDING, code="ATT004", name="embedding-norm-grows", where=("embed.weight",))
    first = remedies_for(Cause.EMBEDDING_NORM_GROWTH, RunSummary(), growth)[0]
    assert first.action is Action.LOWER_LR
    assert first.args == {"factor": 0.1, "parameters": ["embed.weight"]}
    for other in (None, FINDING):
        assert remedies_for(Cause.EMBEDDING_NORM_GROWTH, RunSummary(), other)[0].action is Action.ADD_WEIGHT_DECAY


def test_a_z_loss_pulls_as_hard_as_the_loss_where_log_z_is_now() -> None:
    first = remedies_for(Cause.OUTPUT_LOGIT_DRIFT, RunSummary(), FINDING)[0]
    assert first.action is Action.ADD_Z_LOSS
    assert first.args == {"weight": 0.02}
    assert remedies_for(Cause.OUTPUT_LOGIT_DRIFT, RunSummary())[0].args == {"weight": 1e-4}


def test_epsilon_is_lowered_with_the_gradient_and_never_above_its_default() -> None:
    def eps(norm: float) -> object:
        return remedies_for(Cause.ADAM_EPSILON_UNDERFLOW, RunSummary(grad_median=norm))[0].args["eps"]

    assert eps(6e-12) == 6e-20
    assert eps(40.0) == 1e-8
    assert eps(math.nan) == 1e-8


def test_a_larger_model_is_half_as_wide_again_as_this_one_is() -> None:
    (wider,) = remedies_for(Cause.INSUFFICIENT_CAPACITY, RunSummary(width=16))
    assert (
        wider.text == "make the model one step larger: half as wide again (from 16 to 24), or with a third more layers"
    )
    (unknown,) = remedies_for(Cause.INSUFFICIENT_CAPACITY, RunSummary())
    assert unknown.text == "make the model one step larger: half as wide again, or with a third more layers"
