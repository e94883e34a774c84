from sonde.core.findings import Severity
from sonde.rules.attention.embedding_norm_grows import EmbeddingNormGrows

from ..traces import alarms, falling, judge, rows, worst


def run(values: list[float], every: int, other: float = 0.1) -> list[dict[str, float]]:
    table = rows(every * len(values), loss=falling(every * len(values)))
    for row, value in zip(table[::every], values, strict=True):
        row |= {"weight/rms@embed.weight": value, "weight/rms@head.weight": other}
    return table


def test_an_embedding_that_explodes_in_the_first_steps_is_a_warning() -> None:
    table = [{**row, "loss": 1.0} for row in run([0.1, 0.4, 0.6, 0.8], every=10)]
    seen = alarms(judge(EmbeddingNormGrows(), table))
    assert [step for step, _ in seen] == [21, 31]
    assert seen[0][1].where == ("embed.weight",)


def test_slow_growth_of_a_training_that_goes_well_is_information() -> None:
    seen = judge(EmbeddingNormGrows(), run([0.1, 0.3, 0.5, 0.7, 0.9], every=100))
    assert worst(seen) is Severity.INFO


def test_growth_together_with_all_weights_is_not_the_embedding_s() -> None:
    table = run([0.1, 0.4, 0.6, 0.8], every=10)
    for row in table:
        if "weight/rms@head.weight" in row:
            row["weight/rms@head.weight"] = row["weight/rms@embed.weight"]
    assert not judge(EmbeddingNormGrows(), table)


def test_it_abstains_without_an_embedding() -> None:
    assert not judge(EmbeddingNormGrows(), rows(50, weight__rms_at_head=[2.0**step for step in range(50)]))


def test_growth_from_nothing_counts_from_the_usual_start() -> None:
    assert not judge(EmbeddingNormGrows(), run([0.0001, 0.02, 0.04, 0.06, 0.08], every=10))
    assert worst(judge(EmbeddingNormGrows(), run([0.0001, 0.05, 0.1, 0.2, 0.3], every=10))) is Severity.INFO


def test_one_that_grows_at_once_while_the_loss_falls_well_is_information() -> None:
    assert worst(judge(EmbeddingNormGrows(), run([0.1, 0.4, 0.6, 0.8], every=10))) is Severity.INFO
