"""GRD016 batches-scatter."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.gradients.batches_scatter import BatchesScatter

from ..traces import flat, judge, rows

_WILD = np.random.default_rng(0).chisquare(2, 200).tolist()


def test_batches_of_two_whose_losses_scatter_are_information_from_100_losses_on() -> None:
    seen = judge(BatchesScatter(), rows(200, loss=_WILD, batch__samples=2.0))
    assert [step for step, _ in seen] == [100, 150, 200]
    assert {sighting.severity for _, sighting in seen} == {Severity.INFO}


def test_larger_accumulated_and_even_batches_and_unknown_sizes_say_nothing() -> None:
    larger = rows(200, loss=_WILD, batch__samples=16.0)
    accumulated = rows(200, loss=_WILD, batch__samples=2.0, loss__num_micro=8.0)
    even = rows(200, loss=flat(200, 2.0, noise=0.05), batch__samples=2.0)
    unknown = rows(200, loss=_WILD)
    for given in (larger, accumulated, even, unknown):
        assert judge(BatchesScatter(), given) == []
