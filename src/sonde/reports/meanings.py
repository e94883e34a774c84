"""Series in plain words: what a tag measures, and in what unit."""

import re
from typing import NamedTuple


class Meaning(NamedTuple):
    """A tag for people who have never seen one."""

    title: str
    unit: str = ""
    explained: str = ""
    """What it is, in one clause, where the title does not say it."""

    @property
    def axis(self) -> str:
        """The title with the unit, for an axis; a share is said to be one by its title."""
        return f"{self.title} ({self.unit})" if self.unit not in ("", "share") else self.title


# By path, the part before "@". The page has them as well: `web/make_words.py`.
MEANINGS = {
    "loss": Meaning("Training loss", "", "what the training makes smaller"),
    "loss/ema": Meaning("Training loss, smoothed"),
    "val/loss": Meaning("Validation loss", "", "the loss on data that is not trained on"),
    "lr": Meaning("Learning rate", "", "how far a step goes"),
    "grad/norm": Meaning("Gradient norm", "", "the size of all gradients together, before clipping"),
    "grad/norm_applied": Meaning("Gradient norm after clipping"),
    "grad/rms": Meaning("Gradient size (RMS)", "", "the typical size of a gradient, as root mean square"),
    "grad/std": Meaning("Spread of gradients", "", "their standard deviation"),
    "grad/absmax": Meaning("Largest gradient"),
    "grad/zeros": Meaning("Share of gradients that are exactly zero", "share"),
    "grad/nonfinite": Meaning("Gradients that are NaN or infinite"),
    "grad/cosine": Meaning(
        "Agreement of successive gradients", "", "1: the same direction, 0: unrelated, -1: the opposite direction"
    ),
    "grad/trajectory_dimension": Meaning("Directions that recent gradients span"),
    "clip/factor": Meaning("Clipping factor", "", "what gradients were multiplied by: 1 means not clipped"),
    "update/ratio": Meaning("Update ratio", "", "how much a step changes the weights, relative to their size"),
    "update/effective_lr": Meaning("Effective learning rate", "", "the size of the update over that of the gradient"),
    "update/norm": Meaning("Update size (norm)"),
    "update/cosine": Meaning("Agreement of successive updates"),
    "weight/norm": Meaning("Weight norm"),
    "weight/rms": Meaning("Weight size (RMS)"),
    "weight/std": Meaning("Spread of weights", "", "their standard deviation"),
    "weight/absmax": Meaning("Largest weight"),
    "weight/nonfinite": Meaning("Weights that are NaN or infinite"),
    "act/rms": Meaning("Activation size (RMS)", "", "the typical size of what a layer gives out"),
    "act/absmax": Meaning("Largest activation"),
    "act/dead": Meaning("Share of units that never fire", "share"),
    "act/zeros": Meaning("Share of activations that are zero", "share"),
    "act/saturated": Meaning("Share of saturated activations", "share", "where the activation function is flat"),
    "act/nonfinite": Meaning("Activations that are NaN or infinite"),
    "act/headroom": Meaning("Headroom of activations", "doublings", "until the number format overflows"),
    "gain/mean": Meaning("Mean gain", "", "by what factor a block multiplies the gradient on its way back"),
    "gain/block": Meaning("Gain of the block", "", "by what factor it multiplies the gradient on its way back"),
    "gain/amplification": Meaning("Amplification of the gradient, end to end"),
    "attn/logit_max": Meaning("Largest attention logit", "", "the largest input of the attention's softmax"),
    "attn/entropy_relative": Meaning(
        "Relative attention entropy", "", "1: looks everywhere alike, 0: looks at a single position"
    ),
    "logits/log_z": Meaning("log Z of the output", "", "the logarithm of the output softmax's normaliser"),
    "batch/mean": Meaning("Mean of the inputs"),
    "batch/std": Meaning("Spread of the inputs", "", "their standard deviation"),
    "batch/absmax": Meaning("Largest input"),
    "batch/nonfinite": Meaning("Inputs that are NaN or infinite"),
    "label/share_max": Meaning("Share of the commonest label", "share"),
    "amp/scale": Meaning("Loss scale of mixed precision"),
    "adam/v_ratio": Meaning("Squared gradient over Adam's running mean of it"),
    "adam/epsilon_share": Meaning("Share of Adam's second moments below epsilon", "share"),
    "time/step": Meaning("Time of a step", "s"),
    "time/data": Meaning("Waiting for data, a step", "s"),
    "time/forward": Meaning("Forward, a step", "s"),
    "time/loss": Meaning("Loss, a step", "s"),
    "time/backward": Meaning("Backward, a step", "s"),
    "time/clip": Meaning("Clipping, a step", "s"),
    "time/communication": Meaning("Communication of the script, a step", "s"),
    "time/monitor": Meaning("Sonde's own time within a step", "s"),
    "time/other": Meaning("What else a step takes", "s", "the script's own code, and what nobody can tell"),
    "throughput/samples_per_s": Meaning("Throughput", "samples/s", "how much the training gets through"),
    "throughput/tokens_per_s": Meaning("Throughput", "tokens/s", "how much the training gets through"),
    "memory/peak": Meaning("Peak memory of the GPU", "bytes"),
    "memory/allocated": Meaning("Memory of the GPU in use", "bytes"),
    "host/rss": Meaning("Memory of the process", "bytes"),
    "device/utilisation": Meaning("Utilisation of the GPU", "share"),
    "monitor/time": Meaning("Sonde's own time, a step", "s"),
}

_PERCENTILE = re.compile(r"(grad|act)/p(\d+)")
_KINDS = {"grad": "gradients", "act": "activations"}
_ORDINALS = {"1": "st", "2": "nd", "3": "rd"}


def meaning(tag: str) -> Meaning:
    """What a tag measures; the tag itself where nobody has put it in words.

    Example:
        >>> meaning("grad/rms@head.weight").title, meaning("val/accuracy").title
        ('Gradient size (RMS) of head.weight', 'val/accuracy')
    """
    path, at, where = tag.partition("@")
    known = MEANINGS.get(path)
    if found := _PERCENTILE.fullmatch(path):
        known = Meaning(f"{found[2]}{_ORDINALS.get(found[2][-1], 'th')} percentile of {_KINDS[found[1]]}")
    if known is None:
        return Meaning(tag)
    return known._replace(title=f"{known.title} of {where}") if at else known
