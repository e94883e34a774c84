"""Families of trainings, task × architecture: the unit of every split between tuning and testing."""

PUT_ASIDE: tuple[str, ...] = (
    "images/encoder",
    "sequences/lstm",
    "contrastive/siamese-cnn",
    "autoencoding/cnn",
    "diffusion/mixture",
    "text/mixture-decoder",
)
"""Chosen before anything was judged. Nothing is tuned or looked at there; `judge` refuses them unless it is asked for
them by name, and each such judging is logged."""

TUNING: tuple[str, ...] = (
    "tabular/mlp", "tabular/residual", "tabular/mixture",
    "regression/mlp", "regression/residual", "regression/mixture",
    "images/cnn", "images/cnn-norm", "images/resnet",
    "sequences/rnn", "sequences/gru", "sequences/encoder",
    "text/decoder", "text/lstm", "next-token/embedding",
    "sets/deep-set", "sets/encoder", "graphs/graph-net",
    "ranking/siamese", "contrastive/siamese",
    "autoencoding/mlp", "diffusion/residual", "diffusion/mlp",
    "bandit/mlp", "values/mlp", "ratings/embedding",
    "fine-tuning/mlp", "fine-tuning/cnn-norm", "continual/mlp",
    "two-player/mlp",
)  # fmt: skip
"""For tuning by rotation: what is tuned on some is judged on another."""

FAMILIES: tuple[str, ...] = TUNING + PUT_ASIDE


def is_put_aside(family: str) -> bool:
    """Whether nothing may be looked at there."""
    return family in PUT_ASIDE
