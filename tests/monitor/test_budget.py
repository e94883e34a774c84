"""What a step pays for being watched, and how cadences follow."""

import math

import pytest
import torch

from sonde.monitor.budget import Budget
from sonde.monitor.charges import Charges

CPU = torch.device("cpu")


def _after(num_steps: int, *, idle_steps: int) -> Charges:
    charges = Charges()
    for step in range(num_steps):
        charges.looked("pre", idle=step % num_steps < idle_steps)
    return charges


def test_a_part_for_which_the_device_waits_pays_its_host_time() -> None:
    charges = _after(10, idle_steps=10)
    charges.on_device("pre", 5e-3)  # it holds the gaps in which the device waits
    charges.on_host("pre", 1e-3)
    assert charges.close() == pytest.approx(1e-3)
    assert charges.host_s == pytest.approx(1e-3)


def test_a_part_that_hides_pays_its_device_time_also_in_steps_where_it_is_not_timed() -> None:
    charges = _after(10, idle_steps=0)
    charges.on_device("pre", 2e-4)
    for _ in range(3):
        charges.on_host("pre", 1e-3)
        assert charges.close() == pytest.approx(2e-4)


def test_waiting_in_few_steps_is_forgiven_and_in_many_is_not() -> None:
    for idle_steps, paid in ((1, 2e-4), (40, 1e-3)):
        charges = Charges()
        for step in range(200):
            charges.looked("pre", idle=step >= 200 - idle_steps)
        charges.on_device("pre", 2e-4)
        charges.on_host("pre", 1e-3)
        assert charges.close() == pytest.approx(paid)


def test_parts_add_up_each_by_its_own_measure() -> None:
    charges = Charges()
    charges.looked("pre", idle=True)
    charges.looked("post", idle=False)
    charges.on_device("post", 3e-4)
    charges.on_host("pre", 1e-3)
    charges.on_host("post", 7e-4)
    charges.on_host("hooks", 4e-3, like="post")
    assert charges.close() == pytest.approx(1e-3 + 3e-4)
    assert charges.host_s == pytest.approx(1e-3 + 7e-4 + 4e-3)
    charges.on_host("hooks", 4e-3, like="pre")  # in a step without the others
    assert charges.close() == pytest.approx(4e-3)


def _spend(budget: Budget, num_steps: int, own_s: float) -> float:
    for _ in range(num_steps):
        budget.took("step", own_s, like="step")
        stretch, _ = budget.step(0.1)
    return stretch


def test_the_first_steps_do_not_stretch_cadences() -> None:
    budget = Budget(0.01, CPU)
    assert _spend(budget, 20, 1.0) == 1.0
    assert _spend(budget, 200, 1e-3) == 1.0
    assert _spend(budget, 50, 1.0) > 1.0


def test_a_floor_that_is_given_counts_instead_of_the_usual_one() -> None:
    assert _spend(Budget(0.01, CPU), 90, 1.5e-3) == 1.0
    assert _spend(Budget(0.01, CPU, floor_s=1e-5), 300, 1.5e-3) > 1.0
    assert _spend(Budget(0.01, CPU, floor_s=0.01), 300, 5e-3) == 1.0


def test_the_floor_on_a_cpu_is_2_ms_in_the_first_100_steps_and_then_a_seventh_of_one() -> None:
    def stretch(num_steps: int, step_s: float, **settings: float) -> float:
        budget = Budget(0.01, CPU, **settings)
        for _ in range(num_steps):
            budget.took("step", 1e-3, like="step")
            found, _ = budget.step(step_s)
        return found

    assert stretch(99, 0.01) == 1.0
    assert stretch(300, 0.01) > 4.0, "1 ms of 0.15"
    assert stretch(300, 0.2) == 1.0, "1 ms of 2"
    assert stretch(300, 0.01, floor_s=2e-3) == 1.0, "somebody has asked for it"


def test_a_step_in_which_something_is_prepared_does_not_stretch_cadences() -> None:
    budget = Budget(0.01, CPU)
    _spend(budget, 30, 0.0)
    for _ in range(10):
        budget.prepares_next()
        assert _spend(budget, 1, 0.0) == 1.0
        assert _spend(budget, 1, 10.0) == 1.0
    assert _spend(budget, 10, 10.0) > 1.0


def test_own_time_is_recorded_from_the_first_step_on() -> None:
    budget = Budget(0.01, CPU)
    budget.took("step", 0.5, like="step")
    _, series = budget.step(1.0)
    assert series["monitor/time"] == series["monitor/host"] == 0.5


def test_looks_that_cost_something_however_small_they_are_soon_keep_the_budget() -> None:
    budget, stretch, clock, own = Budget(0.01, CPU), 1.0, 0.0, []
    for step in range(400):
        before, clock = math.floor(clock), clock + 20 / stretch  # blocks have their turn, of thousands
        num_looks = math.floor(clock) - before
        own.append(0.4e-3 + 3.2e-3 * (num_looks > 0) + 0.6e-3 * num_looks)
        if step < 99:
            budget.prepares_next()
        budget.took("step", own[-1], like="step")
        stretch, _ = budget.step(0.25)
    assert sum(own[200:]) / 200 <= 1.2 * 2.5e-3


def _spent(num_steps: int, *, own_s: float, step_s: float, first_s: float | None = None) -> Budget:
    """A budget after a run: what watching took in each of its steps, and in each of the first hundred."""
    budget = Budget(0.01, CPU)
    for step in range(num_steps):
        budget.own_s = own_s if first_s is None or step >= 100 else first_s
        budget.step(step_s)
    return budget


def test_a_short_run_is_told_what_watching_took_in_all_and_no_share() -> None:
    assert str(_spent(1, own_s=0.5, step_s=0.1)) == "1 step; watching took 0.5 s in all, most of it first looks"
    assert str(_spent(40, own_s=0.01, step_s=1.0)) == "40 steps; watching took 0.4 s in all, most of it first looks"
    assert str(_spent(3, own_s=0.001, step_s=1.0)) == "3 steps; watching took 3 ms in all, most of it first looks"
    told = str(_spent(150, own_s=1e-4, first_s=0.005, step_s=0.02))
    assert told == "150 steps; watching took 0.5 s in all, most of it first looks"


def test_a_long_run_is_told_the_share() -> None:
    told = str(_spent(2000, own_s=1e-4, step_s=0.01))
    assert told == "2,000 steps; watching took 0.10 ms a step, 1.00% of the time"
    assert "1.0% " not in str(_spent(400, own_s=1e-4, step_s=0.01))
    assert str(_spent(400, own_s=1e-4, step_s=0.01)).endswith("0.10 ms a step, 1.00% of the time")
    assert "%" in str(_spent(2000, own_s=1e-5, first_s=0.005, step_s=0.01))


@pytest.mark.parametrize("num_steps", [1, 50, 150, 2000])
def test_no_share_is_ever_above_all_whatever_is_charged(num_steps: int) -> None:
    budget = _spent(num_steps, own_s=1e-4, step_s=1e-3)
    budget.total_own_s += 1e3
    assert "%" not in str(budget)
    assert "in all" in str(budget)


def test_a_run_without_steps_says_so() -> None:
    assert str(Budget(0.01, CPU)) == "no step was watched"
