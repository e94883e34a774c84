"""How often each family is measured: the one table of defaults."""

from dataclasses import dataclass

from sonde.core.cadences import Every, every


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadences:
    """When what is measured. The loss, the learning rate and global norms are measured at every step.

    Where a family rotates, each of its tensors or blocks has its turn once an interval, spread evenly over the steps.

    Args:
        layers: Statistics of every gradient and weight.
        rotating: True updates, percentiles, cosines between steps, second moments; rotates over tensors.
        histograms: Histograms that are kept whole; rotates over tensors.
        blocks: Activations, gains and attention; rotates over blocks.
        resources: Memory, devices, phases of a step.
        batches: What the model is given, and its output logits.
        spectra: Singular values of weights; rotates over matrices.
    """

    layers: Every = every(1)
    rotating: Every = every(8)
    histograms: Every = every(100)
    blocks: Every = every(100)
    resources: Every = every(100)
    batches: Every = every(100)
    spectra: Every = every(1000)


ON_GPU = Cadences()
ON_CPU = Cadences(layers=every(10), rotating=every(10))
