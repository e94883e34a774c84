import pytest

from sonde.core.parameter_kinds import Kind, kind_by_name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("0.weight", Kind.MATRIX),
        ("rnn.weight_hh_l0_reverse", Kind.MATRIX),
        ("attn.in_proj_weight", Kind.MATRIX),
        ("token_mixer.0.weight", Kind.MATRIX),
        ("0.bias", Kind.BIAS),
        ("wte.weight", Kind.EMBEDDING),
        ("tok.weight", Kind.EMBEDDING),
        ("patch_embed.proj.weight", Kind.EMBEDDING),
        ("blocks.0.ln_1.weight", Kind.NORMALISATION),
        ("layer4.bn2.weight", Kind.NORMALISATION),
        ("q.lora_A.default.weight", Kind.ADAPTER),
        ("pos.weight", Kind.OTHER),
        ("gamma", Kind.OTHER),
        ("", Kind.OTHER),
    ],
)
def test_names_are_read_by_the_habits_of_those_who_write_models(name: str, kind: Kind) -> None:
    assert kind_by_name(name) is kind
