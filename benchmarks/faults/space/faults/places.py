"""Which trainings a fault can befall."""

from benchmarks.faults.space.axes.losses import SOFTMAX
from benchmarks.faults.space.axes.optimisers import ADAPTIVE
from benchmarks.faults.space.recipe import Training

TOKENS = frozenset({"text", "next-token", "ratings"})
ATTENTION = frozenset({"encoder", "decoder", "mixture-decoder"})
RECURRENT = frozenset({"rnn", "lstm", "gru"})


def anywhere(training: Training) -> bool:
    """Also two players."""
    return True


def single(training: Training) -> bool:
    """One model and one optimiser."""
    return training.task != "two-player"


def of_numbers(training: Training) -> bool:
    """Inputs are numbers, not symbols."""
    return single(training) and training.task not in TOKENS


def supervised(training: Training) -> bool:
    """Targets are given with the inputs."""
    return single(training) and training.task not in ("bandit", "values", "contrastive")


def plain(training: Training) -> bool:
    """No closure: something can stand between backward and step."""
    return single(training) and not training.loop.closure


def logits(training: Training) -> bool:
    """A loss with a softmax inside."""
    return training.loss.kind in SOFTMAX


def adaptive(training: Training) -> bool:
    """An optimiser like Adam."""
    return single(training) and training.optimiser.name in ADAPTIVE


def momentum(training: Training) -> bool:
    """Steps that grow with the gradient."""
    return plain(training) and training.optimiser.name not in ADAPTIVE


def batch_norm(training: Training) -> bool:
    """Running statistics."""
    return training.model.norm == "batch" and single(training)


def chained(training: Training) -> bool:
    """Layers in a row without skips or normalisation."""
    return training.architecture in ("mlp", "cnn", "siamese") and training.model.norm == "none" and single(training)


def dense(training: Training) -> bool:
    """Linear layers that are quick in half precision."""
    return training.architecture in ("mlp", "residual", "mixture") and plain(training) and supervised(training)


def recurrent(training: Training) -> bool:
    """A state that is carried along a sequence."""
    return training.architecture in RECURRENT


def attention(training: Training) -> bool:
    """Attention logits."""
    return training.architecture in ATTENTION


def text(training: Training) -> bool:
    """The next token at each place."""
    return training.task == "text"


def target_network(training: Training) -> bool:
    """A slower copy of the model."""
    return training.task == "values"


def evaluates(training: Training) -> bool:
    """The loop evaluates, and the modes differ."""
    return single(training) and training.task != "bandit" and training.architecture not in ("rnn", "mixture")
