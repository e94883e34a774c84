import numpy as np

from sonde.core.frames import Columns, Frame
from sonde.core.parameter_kinds import Kind
from sonde.rules.attention.embedding_norm_grows import EmbeddingNormGrows
from sonde.rules.history.disturbance import Disturbance
from sonde.rules.layer_depth import latest_matrices, matrices
from sonde.rules.layer_kinds import Kinds
from sonde.rules.step_view import Layers, StepViews
from sonde.rules.weights.weight_norms_diverge import WeightNormsDiverge

from .traces import falling, judge, rows, table


def test_the_table_says_what_a_parameter_is_for_and_what_it_does_not_know_is_nothing() -> None:
    kinds = Kinds(table(embedding_net__weight=(Kind.MATRIX, (4, 4)), lookup__weight=(Kind.EMBEDDING, (9, 4))))
    names = ("embedding_net.weight", "lookup.weight", "unknown.weight")
    assert [kinds.of(name) for name in names] == [Kind.MATRIX, Kind.EMBEDDING, Kind.OTHER]
    assert [kinds.num_values(name) for name in names] == [16, 36, None]
    assert kinds.are(Kind.EMBEDDING, names).tolist() == [False, True, False]


def test_without_a_table_names_are_read() -> None:
    assert Kinds(None).of("lookup.weight") is Kind.MATRIX
    assert Kinds(None).of("wte.weight") is Kind.EMBEDDING
    assert Kinds(None).num_values("wte.weight") is None


def test_matrices_are_in_the_order_of_the_model_whatever_the_order_of_the_optimiser() -> None:
    model = table(
        a__weight=(Kind.MATRIX, (2, 2)), b__weight=(Kind.NORMALISATION, (2,)), c__weight=(Kind.MATRIX, (2, 2))
    )
    layers = Layers(("c.weight", "b.weight", "a.weight"), np.array([3.0, 2.0, 1.0]))
    found = matrices(layers, StepViews(model))
    assert (found.names, found.values.tolist()) == (("a.weight", "c.weight"), [1.0, 3.0])
    assert matrices(layers, StepViews()).names == layers.names


def test_a_model_that_is_described_anew_counts_from_there_on() -> None:
    views = StepViews()
    columns = Columns("step", ("grad/rms@1.weight", "grad/rms@2.weight"))
    views.take(1, [Frame(columns, 1, 0.0, np.array([1.0, 2.0], np.float32))], ())
    before = latest_matrices(views, "grad/rms")
    assert before is not None
    assert before.names == ("1.weight", "2.weight")
    views.describe(table(**{"1__weight": (Kind.NORMALISATION, (4,)), "2__weight": (Kind.MATRIX, (4, 4))}))
    after = latest_matrices(views, "grad/rms")
    assert after is not None
    assert after.names == ("2.weight",)


def _growing(name: str) -> list[dict[str, float]]:
    given = rows(40, loss=falling(40), weight__rms_at_x=[0.1 * 1.2**i for i in range(40)], weight__rms_at_head=0.1)
    return [{tag.replace("@x", f"@{name}"): value for tag, value in row.items()} for row in given]


def test_an_embedding_is_one_by_its_class_and_not_by_its_name() -> None:
    lookup = table(lookup__weight=(Kind.EMBEDDING, (9, 4)), head=(Kind.MATRIX, (4, 4)))
    assert judge(EmbeddingNormGrows(), _growing("lookup.weight"), model=lookup)
    assert not judge(EmbeddingNormGrows(), _growing("lookup.weight"))
    linear = table(embedding_net__weight=(Kind.MATRIX, (4, 4)), head=(Kind.MATRIX, (4, 4)))
    assert not judge(EmbeddingNormGrows(), _growing("embedding_net.weight"), model=linear)
    assert judge(EmbeddingNormGrows(), _growing("embedding_net.weight"))


def test_biases_of_recurrent_layers_are_biases_too() -> None:
    model = table(rnn__bias_hh_l0=(Kind.BIAS, (4,)), head=(Kind.MATRIX, (4, 4)))
    apart = [
        {"loss": 1.0, "weight/rms@rnn.bias_hh_l0": 1e-6 if i > 2 else 1.0, "weight/rms@head": 1.0} for i in range(9)
    ]
    assert judge(WeightNormsDiverge(), apart)
    assert not judge(WeightNormsDiverge(), apart, model=model)


def test_large_steps_of_biases_are_no_upheaval() -> None:
    columns = Columns("step", ("update/ratio@rnn.bias_hh_l0", "update/ratio"))
    model = table(rnn__bias_hh_l0=(Kind.BIAS, (4,)))
    for told, is_seen in ((None, True), (model, False)):
        views, disturbance = StepViews(told), Disturbance()
        for step in range(1, 9):
            view = views.take(step, [Frame(columns, step, 0.0, np.array([0.5, 1e-3], np.float32))], ())
            disturbance = disturbance.after(view, 1.0, rise=1.0, is_best=False)
        assert disturbance.is_seen is is_seen
