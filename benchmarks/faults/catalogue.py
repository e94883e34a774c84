"""All scenarios, the faulty ones by kind, then the healthy ones."""

from benchmarks.faults import (
    data,
    depth,
    generalisation,
    healthy,
    loops,
    optimisation,
    precision,
    ranks,
    systems,
    transformers,
)
from benchmarks.faults.scenario import Scenario

FIXED = ("fix-loop",)
SKIPPED = ("skip-batch",)

_LOOPS = [
    Scenario("mlp-missing-zero-grad", "missing-zero-grad", loops.missing_zero_grad_mlp, hard=True, cures=FIXED),
    Scenario("gru-missing-zero-grad", "missing-zero-grad", loops.missing_zero_grad_gru, hard=True, cures=FIXED),
    Scenario("mlp-zero-grad-misplaced", "zero-grad-misplaced", loops.zero_grad_misplaced_mlp, hard=True, cures=FIXED),
    Scenario(
        "convnet-zero-grad-misplaced", "zero-grad-misplaced", loops.zero_grad_misplaced_convnet, hard=True, cures=FIXED
    ),
    Scenario("mlp-accumulation-not-scaled", "accumulation-not-scaled", loops.accumulation_not_scaled_mlp, cures=FIXED),
    Scenario(
        "autoencoder-accumulation-not-scaled",
        "accumulation-not-scaled",
        loops.accumulation_not_scaled_autoencoder,
        cures=FIXED,
    ),
    Scenario(
        "mlp-summed-loss",
        "wrong-loss-reduction",
        loops.wrong_loss_reduction_mlp,
        also=("lr-too-high",),
        repairable=True,
        cures=FIXED,
    ),
    Scenario(
        "gru-summed-loss",
        "wrong-loss-reduction",
        loops.wrong_loss_reduction_gru,
        also=("lr-too-high",),
        repairable=True,
        cures=FIXED,
    ),
    Scenario("gru-padding-not-masked", "wrong-loss-reduction", loops.padding_not_masked, also=("no-learnable-signal",)),
    Scenario("mlp-double-softmax", "double-softmax", loops.double_softmax_mlp, hard=True, cures=FIXED),
    Scenario("convnet-double-softmax", "double-softmax", loops.double_softmax_convnet, hard=True, cures=FIXED),
    Scenario(
        "dropout-eval-mode-in-training",
        "eval-mode-in-training",
        loops.eval_mode_in_training_dropout,
        onset=10,
        hard=True,
        cures=FIXED,
    ),
    Scenario(
        "batchnorm-eval-mode-in-training",
        "eval-mode-in-training",
        loops.eval_mode_in_training_batchnorm,
        hard=True,
        cures=FIXED,
    ),
    Scenario(
        "dropout-train-mode-in-evaluation",
        "train-mode-in-evaluation",
        loops.train_mode_in_evaluation_dropout,
        onset=64,
        hard=True,
        cures=FIXED,
    ),
    Scenario(
        "batchnorm-train-mode-in-evaluation",
        "train-mode-in-evaluation",
        loops.train_mode_in_evaluation_batchnorm,
        onset=64,
        hard=True,
        cures=FIXED,
    ),
    Scenario("batchnorm-slow-momentum", "train-eval-mismatch", loops.train_eval_mismatch_momentum, cures=FIXED),
    Scenario("batchnorm-two-cameras", "train-eval-mismatch", loops.train_eval_mismatch_domains, cures=FIXED),
    Scenario(
        "mlp-batchnorm-small-batch", "batchnorm-small-batch", loops.batchnorm_small_batch_mlp, cures=("add-layernorm",)
    ),
    Scenario(
        "convnet-batchnorm-small-batch", "batchnorm-small-batch", loops.batchnorm_small_batch_convnet, repairable=True
    ),
    Scenario("convnet-detached-encoder", "disconnected-layer", loops.disconnected_layer_detach, hard=True, cures=FIXED),
    Scenario("mlp-unused-branch", "disconnected-layer", loops.disconnected_layer_branch, hard=True, cures=FIXED),
    Scenario(
        "convnet-head-not-in-optimizer",
        "parameter-not-in-optimizer",
        loops.parameter_not_in_optimizer_head,
        hard=True,
        cures=FIXED,
    ),
    Scenario(
        "gru-not-in-optimizer",
        "parameter-not-in-optimizer",
        loops.parameter_not_in_optimizer_part,
        hard=True,
        cures=FIXED,
    ),
    Scenario("convnet-frozen-by-name", "frozen-layer", loops.frozen_layer_by_name, hard=True, cures=FIXED),
    Scenario("mlp-frozen-by-rate", "frozen-layer", loops.frozen_layer_by_rate, hard=True, cures=FIXED),
    Scenario(
        "mlp-resumed-without-optimizer", "optimizer-state-lost", loops.optimizer_state_lost_mlp, onset=300, cures=FIXED
    ),
]

_DATA = [
    Scenario("mlp-scaled-batch", "bad-batch", data.bad_batch_scale, onset=data.BAD_STEP, cures=SKIPPED),
    Scenario("convnet-garbage-batch", "bad-batch", data.bad_batch_garbage, onset=data.BAD_STEP, cures=SKIPPED),
    Scenario(
        "mlp-nan-input", "nonfinite-input", data.nonfinite_input_nan, onset=data.BAD_STEP, hard=True, cures=SKIPPED
    ),
    Scenario(
        "convnet-infinite-input",
        "nonfinite-input",
        data.nonfinite_input_infinity,
        onset=data.BAD_STEP,
        hard=True,
        cures=SKIPPED,
    ),
    Scenario(
        "mlp-columns-in-units", "unnormalised-inputs", data.unnormalised_inputs_columns, cures=("normalise-inputs",)
    ),
    Scenario("convnet-raw-pixels", "unnormalised-inputs", data.unnormalised_inputs_pixels, cures=("normalise-inputs",)),
    Scenario("mlp-drift-jump", "data-drift", data.data_drift_jump, onset=data.BAD_STEP),
    Scenario("convnet-drift-slow", "data-drift", data.data_drift_slow, onset=100),
    Scenario("mlp-shuffled-labels", "no-learnable-signal", data.shuffled_labels, cures=("inspect-batch",)),
    Scenario("convnet-constant-labels", "no-learnable-signal", data.constant_labels, cures=("inspect-batch",)),
    Scenario("mlp-labels-of-next-row", "no-learnable-signal", data.labels_of_next_row, cures=("inspect-batch",)),
]

_PRECISION = [
    Scenario(
        "mlp-clip-before-unscale", "clip-before-unscale", precision.clip_before_unscale_mlp, hard=True, cures=FIXED
    ),
    Scenario(
        "convnet-clip-before-unscale",
        "clip-before-unscale",
        precision.clip_before_unscale_convnet,
        hard=True,
        cures=FIXED,
    ),
    Scenario("bilinear-fp16-overflow", "precision-overflow", precision.precision_overflow_pooling, repairable=True),
    Scenario(
        "convnet-fp16-softmax", "precision-overflow", precision.precision_overflow_softmax, onset=40, repairable=True
    ),
    Scenario("mlp-bf16-weights", "precision-underflow", precision.precision_underflow_mlp, cures=("use-fp32",)),
    Scenario(
        "language-bf16-weights", "precision-underflow", precision.precision_underflow_language, cures=("use-fp32",)
    ),
    Scenario(
        "autoencoder-fp16-unscaled",
        "missing-loss-scaling",
        precision.missing_loss_scaling_fields,
        also=("precision-underflow",),
        cures=("use-loss-scaling",),
    ),
]

_SYSTEMS = [
    Scenario("mlp-kept-losses", "memory-leak", systems.memory_leak_losses, cures=("free-graph",)),
    Scenario("convnet-kept-features", "memory-leak", systems.memory_leak_features),
    Scenario("convnet-steady-data-stall", "data-stall", systems.data_stall_steady, cures=("more-loader-workers",)),
    Scenario("mlp-bursty-data-stall", "data-stall", systems.data_stall_bursts, cures=("more-loader-workers",)),
    Scenario("mlp-piling-hooks", "slowdown", systems.slowdown_hooks, onset=64),
    Scenario("convnet-throttled", "slowdown", systems.slowdown_throttled, onset=150),
]

_RANKS = [
    Scenario("ddp-straggler", "straggler", ranks.straggler_always, ranks=2),
    Scenario("ddp-late-straggler", "straggler", ranks.straggler_later, ranks=2, onset=120),
    Scenario("ddp-bypassed", "rank-divergence", ranks.rank_divergence_bypassed, ranks=2, hard=True, cures=FIXED),
    Scenario(
        "ranks-clipped-apart", "rank-divergence", ranks.rank_divergence_clip, ranks=2, onset=100, hard=True, cures=FIXED
    ),
]

_HEALTHY = [
    Scenario("healthy-accumulation", None, loops.healthy_accumulation),
    Scenario("healthy-summed-loss", None, loops.healthy_sum_loss),
    Scenario("healthy-frozen-embedding", None, loops.healthy_frozen_embedding),
    Scenario("healthy-target-network", None, loops.healthy_target_network),
    Scenario("healthy-batchnorm-in-eval", None, loops.healthy_frozen_batchnorm),
    Scenario("healthy-checkpointing", None, loops.healthy_checkpointing),
    Scenario("healthy-two-optimizers", None, loops.healthy_two_optimizers),
    Scenario("healthy-uneven-batches", None, loops.healthy_uneven_batches),
    Scenario("healthy-raw-pixels", None, data.healthy_pixels),
    Scenario("healthy-growing-length", None, data.healthy_curriculum),
    Scenario("healthy-slow-first-batch", None, data.healthy_slow_first_batch),
    Scenario("healthy-validation-pauses", None, data.healthy_validation_pauses),
    Scenario("healthy-scale-search", None, precision.healthy_scale_search),
    Scenario("healthy-bf16-autocast", None, precision.healthy_bfloat16),
    Scenario("healthy-filling-memory", None, systems.healthy_memory_warm_up),
]

SCENARIOS: list[Scenario] = [
    *optimisation.SCENARIOS,
    *depth.SCENARIOS,
    *generalisation.SCENARIOS,
    *transformers.SCENARIOS,
    *_LOOPS,
    *_DATA,
    *_PRECISION,
    *_SYSTEMS,
    *_RANKS,
    *healthy.SCENARIOS,
    *_HEALTHY,
]
