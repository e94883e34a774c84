from sonde.core.findings import Severity
from sonde.rules.gradients.gradients_vanish_with_depth import GradientsVanishWithDepth

from ..traces import alarms, falling, flat, judge, rows, worst

FADING = {f"grad/rms@{layer}.weight": 0.1 ** (6 - layer) for layer in range(7)}


def every_ten(table: list[dict[str, float]], more: dict[str, float]) -> list[dict[str, float]]:
    return [row | more if step % 10 == 0 else row for step, row in enumerate(table)]


def test_it_is_a_warning_as_soon_as_a_stuck_loss_can_be_judged() -> None:
    milder = {tag: value**0.5 for tag, value in FADING.items()}
    seen = judge(GradientsVanishWithDepth(), every_ten(rows(120, loss=flat(120, noise=0.01)), milder))
    assert seen[0][0] == 11
    assert alarms(seen)[0][0] == 100
    assert alarms(seen)[0][1].where[0] == "0.weight"


def test_it_is_information_while_the_loss_falls() -> None:
    seen = judge(GradientsVanishWithDepth(), every_ten(rows(300, loss=falling(300)), FADING))
    assert worst(seen) is Severity.INFO


def test_embeddings_norms_and_biases_are_not_the_first_layer() -> None:
    even = {f"grad/rms@blocks.{layer}.mlp.weight": 1.0 for layer in range(5)}
    small = {"grad/rms@embed.weight": 1e-9, "grad/rms@blocks.0.norm.weight": 1e-9, "grad/rms@blocks.0.mlp.bias": 1e-9}
    assert not judge(GradientsVanishWithDepth(), every_ten(rows(120, loss=1.0), small | even))


def test_a_normalisation_is_known_by_its_values() -> None:
    sizes = {f"grad/rms@{layer}.weight": 1.0 for layer in range(1, 6)} | {"grad/rms@0.weight": 1e-9}
    units = {"weight/mean@0.weight": 1.0, "weight/std@0.weight": 0.01}
    assert not judge(GradientsVanishWithDepth(), every_ten(rows(120, loss=1.0), units | sizes))


def test_where_next_to_nothing_arrives_from_the_start_the_first_forty_losses_are_enough() -> None:
    seen = judge(GradientsVanishWithDepth(), every_ten(rows(60, loss=flat(60, noise=0.05)), FADING))
    assert alarms(seen)[0][0] == 41


def test_not_so_in_a_warmup_nor_where_it_began_later_nor_where_the_loss_has_begun_to_fall() -> None:
    warming = rows(60, loss=flat(60), lr=[1e-4 * (step + 1) for step in range(60)])
    assert worst(judge(GradientsVanishWithDepth(), every_ten(warming, FADING))) is Severity.INFO
    later = every_ten(rows(60, loss=flat(60)), FADING)
    later[0] = dict.fromkeys(later[0], 1.0)
    assert worst(judge(GradientsVanishWithDepth(), later)) is Severity.INFO
    assert worst(judge(GradientsVanishWithDepth(), every_ten(rows(60, loss=falling(60)), FADING))) is Severity.INFO
