"""Why a training goes wrong: the closed vocabulary that diagnoses speak.

Other programs compare the values, so none is ever renamed; docs/reference/findings.md lists them.
"""

import enum


class Cause(enum.StrEnum):
    """One reason for trouble; its value is what stands in JSON.

    Example:
        >>> Cause("lr-too-high").meaning
        'the learning rate is too high: steps overshoot, and the loss jumps or rises'
    """

    LR_TOO_HIGH = "lr-too-high"
    LR_TOO_LOW = "lr-too-low"
    LR_SPIKE = "lr-spike"
    WARMUP_TOO_SHORT = "warmup-too-short"
    SCHEDULE_DECAYS_TOO_FAST = "schedule-decays-too-fast"
    SCHEDULE_MISAPPLIED = "schedule-misapplied"
    MISSING_LR_DECAY = "missing-lr-decay"
    VANISHING_GRADIENTS = "vanishing-gradients"
    EXPLODING_GRADIENTS = "exploding-gradients"
    MISSING_CLIPPING = "missing-clipping"
    CLIP_TOO_AGGRESSIVE = "clip-too-aggressive"
    CLIP_BEFORE_UNSCALE = "clip-before-unscale"
    GAIN_DRIFT = "gain-drift"
    BAD_INITIALISATION = "bad-initialisation"
    SYMMETRIC_INITIALISATION = "symmetric-initialisation"
    DEAD_UNITS = "dead-units"
    SATURATED_UNITS = "saturated-units"
    ACTIVATION_EXPLOSION = "activation-explosion"
    GRADIENT_IMBALANCE = "gradient-imbalance"
    WEIGHT_NORM_JUMP = "weight-norm-jump"
    OVERFITTING = "overfitting"
    MISSING_REGULARISATION = "missing-regularisation"
    UNDERFITTING = "underfitting"
    INSUFFICIENT_CAPACITY = "insufficient-capacity"
    WEIGHT_DECAY_TOO_STRONG = "weight-decay-too-strong"
    PLATEAU = "plateau"
    LABEL_NOISE = "label-noise"
    NO_LEARNABLE_SIGNAL = "no-learnable-signal"
    BAD_BATCH = "bad-batch"
    NONFINITE_INPUT = "nonfinite-input"
    UNNORMALISED_INPUTS = "unnormalised-inputs"
    DATA_DRIFT = "data-drift"
    DISCONNECTED_LAYER = "disconnected-layer"
    PARAMETER_NOT_IN_OPTIMIZER = "parameter-not-in-optimizer"
    FROZEN_LAYER = "frozen-layer"
    MISSING_ZERO_GRAD = "missing-zero-grad"
    ZERO_GRAD_MISPLACED = "zero-grad-misplaced"
    ACCUMULATION_NOT_SCALED = "accumulation-not-scaled"
    WRONG_LOSS_REDUCTION = "wrong-loss-reduction"
    DOUBLE_SOFTMAX = "double-softmax"
    EVAL_MODE_IN_TRAINING = "eval-mode-in-training"
    TRAIN_MODE_IN_EVALUATION = "train-mode-in-evaluation"
    TRAIN_EVAL_MISMATCH = "train-eval-mismatch"
    BATCHNORM_SMALL_BATCH = "batchnorm-small-batch"
    BATCH_TOO_SMALL = "batch-too-small"
    BATCH_TOO_LARGE = "batch-too-large"
    LONG_SEQUENCE = "long-sequence"
    ATTENTION_LOGIT_GROWTH = "attention-logit-growth"
    ATTENTION_ENTROPY_COLLAPSE = "attention-entropy-collapse"
    OUTPUT_LOGIT_DRIFT = "output-logit-drift"
    EMBEDDING_NORM_GROWTH = "embedding-norm-growth"
    PRECISION_OVERFLOW = "precision-overflow"
    PRECISION_UNDERFLOW = "precision-underflow"
    MISSING_LOSS_SCALING = "missing-loss-scaling"
    OPTIMIZER_STATE_LOST = "optimizer-state-lost"
    ADAM_EPSILON_UNDERFLOW = "adam-epsilon-underflow"
    MEMORY_LEAK = "memory-leak"
    MEMORY_NEAR_LIMIT = "memory-near-limit"
    DATA_STALL = "data-stall"
    STRAGGLER = "straggler"
    SLOWDOWN = "slowdown"
    RANK_DIVERGENCE = "rank-divergence"
    NONDETERMINISM = "nondeterminism"
    TARGETS_NOT_SHIFTED = "targets-not-shifted"
    DATA_NOT_SHUFFLED = "data-not-shuffled"
    TARGET_NETWORK_STALE = "target-network-stale"
    STATE_RESET = "state-reset"

    @property
    def meaning(self) -> str:
        """What it says, in one line."""
        return _MEANINGS[self]


_MEANINGS = {
    Cause.LR_TOO_HIGH: "the learning rate is too high: steps overshoot, and the loss jumps or rises",
    Cause.LR_TOO_LOW: "the learning rate is too low: weights hardly move, and the loss hardly falls",
    Cause.LR_SPIKE: "the learning rate jumped up for a while, by accident or by a restart",
    Cause.WARMUP_TOO_SHORT: "the learning rate reached its peak before the optimiser had settled",
    Cause.SCHEDULE_DECAYS_TOO_FAST: "the learning rate fell while the loss still had far to go",
    Cause.SCHEDULE_MISAPPLIED: "the scheduler is stepped at the wrong place, such as after batches instead of epochs",
    Cause.MISSING_LR_DECAY: "the learning rate never falls, so the loss bounces above its minimum",
    Cause.VANISHING_GRADIENTS: "gradients shrink on their way to the early layers, which stop learning",
    Cause.EXPLODING_GRADIENTS: "gradients grow from step to step or from layer to layer without bound",
    Cause.MISSING_CLIPPING: "single huge gradients are applied in full, since nothing clips them",
    Cause.CLIP_TOO_AGGRESSIVE: "the clip's limit is below ordinary gradients, so nearly every step is cut short",
    Cause.CLIP_BEFORE_UNSCALE: "gradients are clipped while they still carry the loss scale of float16",
    Cause.GAIN_DRIFT: "blocks amplify (or shrink) the gradient more and more as training goes on",
    Cause.BAD_INITIALISATION: "the initial weights make signals grow or fade with depth",
    Cause.SYMMETRIC_INITIALISATION: "units of a layer start out equal and so stay equal",
    Cause.DEAD_UNITS: "many units of a layer always give zero and get no gradient",
    Cause.SATURATED_UNITS: "many units sit in the flat part of their activation and pass hardly any gradient",
    Cause.ACTIVATION_EXPLOSION: "activations grow towards the largest number that their format holds",
    Cause.GRADIENT_IMBALANCE: "layers of the same kind get gradients of very different size",
    Cause.WEIGHT_NORM_JUMP: "weights of a layer became much larger within few steps",
    Cause.OVERFITTING: "the model learns its examples by heart: training improves, validation does not",
    Cause.MISSING_REGULARISATION: "no dropout, weight decay or augmentation holds back learning by heart",
    Cause.UNDERFITTING: "training and validation losses both stay high",
    Cause.INSUFFICIENT_CAPACITY: "the model is too small for the task",
    Cause.WEIGHT_DECAY_TOO_STRONG: "weight decay pulls the weights down faster than gradients build them up",
    Cause.PLATEAU: "the loss has stopped falling",
    Cause.LABEL_NOISE: "a share of the labels is wrong",
    Cause.NO_LEARNABLE_SIGNAL: "labels are constant, shuffled, or do not depend on the inputs",
    Cause.BAD_BATCH: "one batch is unlike the others: corrupt, mislabelled or an outlier",
    Cause.NONFINITE_INPUT: "the data hold NaN or infinite values",
    Cause.UNNORMALISED_INPUTS: "inputs are far from mean 0 and standard deviation 1, or features differ in scale",
    Cause.DATA_DRIFT: "the data changed during the run",
    Cause.DISCONNECTED_LAYER: "the loss does not depend on the layer, so it gets no gradient",
    Cause.PARAMETER_NOT_IN_OPTIMIZER: "a trainable parameter was never given to the optimiser",
    Cause.FROZEN_LAYER: "the layer gets gradients but its weights never change",
    Cause.MISSING_ZERO_GRAD: "gradients are never cleared and pile up from step to step",
    Cause.ZERO_GRAD_MISPLACED: "gradients are cleared between the backward pass and the step, or too rarely",
    Cause.ACCUMULATION_NOT_SCALED: "micro-batches are added up without dividing the loss by their number",
    Cause.WRONG_LOSS_REDUCTION: "the loss is a sum where a mean was meant, or the reverse",
    Cause.DOUBLE_SOFTMAX: "a softmax is applied before a loss that already contains one",
    Cause.EVAL_MODE_IN_TRAINING: "the model trains in eval mode: dropout is off, batch norm does not learn",
    Cause.TRAIN_MODE_IN_EVALUATION: "the model is evaluated in train mode, with dropout on",
    Cause.TRAIN_EVAL_MISMATCH: "training and evaluation disagree, for example by stale batch-norm statistics",
    Cause.BATCHNORM_SMALL_BATCH: "batch norm estimates its statistics from too few examples",
    Cause.BATCH_TOO_SMALL: "the batch is so small that its noise is larger than the gradient",
    Cause.BATCH_TOO_LARGE: "the batch is larger than the gradient's noise calls for: compute is wasted",
    Cause.LONG_SEQUENCE: "this step had a sequence much longer than the others",
    Cause.ATTENTION_LOGIT_GROWTH: "attention logits grow until the softmax becomes one-hot",
    Cause.ATTENTION_ENTROPY_COLLAPSE: "attention heads look at one position only",
    Cause.OUTPUT_LOGIT_DRIFT: "all output logits drift together (log Z), which the loss does not see",
    Cause.EMBEDDING_NORM_GROWTH: "embeddings grow without bound",
    Cause.PRECISION_OVERFLOW: "numbers exceed what their format holds, which for float16 is 65,504",
    Cause.PRECISION_UNDERFLOW: "gradients or updates are too small for their number format and become zero",
    Cause.MISSING_LOSS_SCALING: "float16 is used without scaling the loss",
    Cause.OPTIMIZER_STATE_LOST: "training was resumed without the optimiser's state",
    Cause.ADAM_EPSILON_UNDERFLOW: "Adam's second moments fell to its epsilon, so steps are no longer normalised",
    Cause.MEMORY_LEAK: "memory grows step by step, for example because losses are kept with their graph",
    Cause.MEMORY_NEAR_LIMIT: "memory is nearly used up",
    Cause.DATA_STALL: "training waits for the data loader",
    Cause.STRAGGLER: "one rank is slower than the others, which wait for it",
    Cause.SLOWDOWN: "steps take longer than before",
    Cause.RANK_DIVERGENCE: "ranks that should hold the same weights no longer do",
    Cause.NONDETERMINISM: "the same step, repeated, gives another result",
    Cause.TARGETS_NOT_SHIFTED: "a language model is asked for the token that it is given, not for the next one",
    Cause.DATA_NOT_SHUFFLED: "examples come in the order of their targets",
    Cause.TARGET_NETWORK_STALE: "the target network, which makes the targets, is never updated",
    Cause.STATE_RESET: "the model or the optimiser is made anew in the middle of the training",
}
