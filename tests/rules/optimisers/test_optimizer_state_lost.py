from sonde.rules.optimisers.optimizer_state_lost import OptimizerStateLost
from sonde.rules.step_view import Fact

from ..traces import alarms, flat, judge, rows


def test_second_moments_that_become_zero_again_were_lost() -> None:
    shares = [0.02] * 3 + [0.4] * 2
    seen = alarms(judge(OptimizerStateLost(), rows(5, lr=0.1, adam__zero_share_at_a=shares)))
    assert [step for step, _ in seen] == [4]
    assert seen[0][1].where == ("a",)


def test_a_rate_that_leaps_back_to_its_first_value_and_stays_with_a_worse_loss() -> None:
    rates = [0.1 * 0.98**step for step in range(100)] + [0.1] * 60
    losses = [*flat(100, 0.5), *flat(60, 1.0)]
    seen = alarms(judge(OptimizerStateLost(), rows(160, loss=losses, lr=rates)))
    assert [step for step, _ in seen] == [121]
    assert seen[0][1].since == 101


def test_restarts_of_a_schedule_go_on_to_fall_and_are_healthy() -> None:
    rates = [0.1 * 0.98**step for step in range(100)] * 3
    losses = [*flat(100, 0.5), *flat(100, 0.9), *flat(100, 0.9)]
    assert not judge(OptimizerStateLost(), rows(300, loss=losses, lr=rates))


def test_after_a_resume_larger_steps_at_the_same_rate_tell() -> None:
    ratios = [1e-3] * 10 + [2e-2] * 3
    resumed = {11: [Fact("resumed", {})]}
    table = rows(13, lr=0.1, update__ratio_at_a=ratios)
    assert not judge(OptimizerStateLost(), table)
    # The row of the resume already holds the new ratio: compared is what came before it.
    table.insert(10, {"lr": 0.1})
    assert alarms(judge(OptimizerStateLost(), table, facts=resumed))[0][0] == 12


def test_a_resume_that_kept_its_state_says_nothing() -> None:
    resumed = {11: [Fact("resumed", {})]}
    table = rows(40, lr=0.1, loss=flat(40), update__ratio_at_a=flat(40, 1e-3), adam__zero_share_at_a=0.02)
    assert not judge(OptimizerStateLost(), table, facts=resumed)


def test_a_single_tensor_whose_ratio_leaps_after_a_resume_is_no_lost_state() -> None:
    resumed = {11: [Fact("resumed", {})]}
    leaps = [1e-3] * 11 + [2e-2] * 3
    one = rows(14, lr=0.1, update__ratio_at_a=leaps, update__ratio_at_b=1e-3, update__ratio_at_c=1e-3)
    most = rows(14, lr=0.1, update__ratio_at_a=leaps, update__ratio_at_b=leaps, update__ratio_at_c=1e-3)
    assert not alarms(judge(OptimizerStateLost(), one, facts=resumed))
    assert alarms(judge(OptimizerStateLost(), most, facts=resumed))
