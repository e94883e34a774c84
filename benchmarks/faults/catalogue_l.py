"""Mistakes of loops, data, precision, systems and ranks, and healthy trainings that look like them."""

from benchmarks.faults import data, loops, precision, ranks, systems
from benchmarks.faults.scenario import Scenario

SCENARIOS: list[Scenario] = [
    Scenario("mlp-missing-zero-grad", "missing-zero-grad", loops.missing_zero_grad_mlp, hard=True),
    Scenario("gru-missing-zero-grad", "missing-zero-grad", loops.missing_zero_grad_gru, hard=True),
    Scenario("mlp-zero-grad-misplaced", "zero-grad-misplaced", loops.zero_grad_misplaced_mlp, hard=True),
    Scenario("convnet-zero-grad-misplaced", "zero-grad-misplaced", loops.zero_grad_misplaced_convnet, hard=True),
    Scenario("mlp-accumulation-not-scaled", "accumulation-not-scaled", loops.accumulation_not_scaled_mlp),
    Scenario(
        "autoencoder-accumulation-not-scaled", "accumulation-not-scaled", loops.accumulation_not_scaled_autoencoder
    ),
    Scenario("mlp-summed-loss", "wrong-loss-reduction", loops.wrong_loss_reduction_mlp, also=("lr-too-high",)),
    Scenario("gru-summed-loss", "wrong-loss-reduction", loops.wrong_loss_reduction_gru, also=("lr-too-high",)),
    Scenario("gru-padding-not-masked", "wrong-loss-reduction", loops.padding_not_masked, also=("no-learnable-signal",)),
    Scenario("mlp-double-softmax", "double-softmax", loops.double_softmax_mlp, hard=True),
    Scenario("convnet-double-softmax", "double-softmax", loops.double_softmax_convnet, hard=True),
    Scenario(
        "dropout-eval-mode-in-training",
        "eval-mode-in-training",
        loops.eval_mode_in_training_dropout,
        onset=12,
        hard=True,
    ),
    Scenario(
        "batchnorm-eval-mode-in-training", "eval-mode-in-training", loops.eval_mode_in_training_batchnorm, hard=True
    ),
    Scenario(
        "dropout-train-mode-in-evaluation",
        "train-mode-in-evaluation",
        loops.train_mode_in_evaluation_dropout,
        onset=64,
        hard=True,
    ),
    Scenario(
        "batchnorm-train-mode-in-evaluation",
        "train-mode-in-evaluation",
        loops.train_mode_in_evaluation_batchnorm,
        onset=64,
        hard=True,
    ),
    Scenario("batchnorm-slow-momentum", "train-eval-mismatch", loops.train_eval_mismatch_momentum),
    Scenario("batchnorm-two-cameras", "train-eval-mismatch", loops.train_eval_mismatch_domains),
    Scenario("mlp-batchnorm-small-batch", "batchnorm-small-batch", loops.batchnorm_small_batch_mlp),
    Scenario("convnet-batchnorm-small-batch", "batchnorm-small-batch", loops.batchnorm_small_batch_convnet),
    Scenario("convnet-detached-encoder", "disconnected-layer", loops.disconnected_layer_detach, hard=True),
    Scenario("mlp-unused-branch", "disconnected-layer", loops.disconnected_layer_branch, hard=True),
    Scenario(
        "convnet-head-not-in-optimizer", "parameter-not-in-optimizer", loops.parameter_not_in_optimizer_head, hard=True
    ),
    Scenario(
        "gru-not-in-optimizer", "parameter-not-in-optimizer", loops.parameter_not_in_optimizer_embedding, hard=True
    ),
    Scenario("convnet-frozen-by-name", "frozen-layer", loops.frozen_layer_by_name, hard=True),
    Scenario("mlp-frozen-by-rate", "frozen-layer", loops.frozen_layer_by_rate, hard=True),
    Scenario("mlp-resumed-without-optimizer", "optimizer-state-lost", loops.optimizer_state_lost_mlp, onset=240),
    Scenario("mlp-scaled-batch", "bad-batch", data.bad_batch_scale, onset=data.BAD_STEP),
    Scenario("convnet-garbage-batch", "bad-batch", data.bad_batch_garbage, onset=data.BAD_STEP),
    Scenario("mlp-nan-input", "nonfinite-input", data.nonfinite_input_nan, onset=data.BAD_STEP, hard=True),
    Scenario(
        "convnet-infinite-input", "nonfinite-input", data.nonfinite_input_infinity, onset=data.BAD_STEP, hard=True
    ),
    Scenario("mlp-columns-in-units", "unnormalised-inputs", data.unnormalised_inputs_columns),
    Scenario("convnet-raw-pixels", "unnormalised-inputs", data.unnormalised_inputs_pixels),
    Scenario("mlp-drift-jump", "data-drift", data.data_drift_jump, onset=data.BAD_STEP),
    Scenario("convnet-drift-slow", "data-drift", data.data_drift_slow, onset=100),
    Scenario("mlp-shuffled-labels", "no-learnable-signal", data.shuffled_labels),
    Scenario("convnet-constant-labels", "no-learnable-signal", data.constant_labels),
    Scenario("mlp-labels-of-next-row", "no-learnable-signal", data.labels_of_next_row),
    Scenario("mlp-clip-before-unscale", "clip-before-unscale", precision.clip_before_unscale_mlp, hard=True),
    Scenario("convnet-clip-before-unscale", "clip-before-unscale", precision.clip_before_unscale_convnet, hard=True),
    Scenario("bilinear-fp16-overflow", "precision-overflow", precision.precision_overflow_pooling),
    Scenario("mlp-fp16-loss-overflow", "precision-overflow", precision.precision_overflow_loss),
    Scenario("mlp-bf16-weights", "precision-underflow", precision.precision_underflow_mlp),
    Scenario("language-bf16-weights", "precision-underflow", precision.precision_underflow_language),
    Scenario(
        "field-fp16-unscaled",
        "missing-loss-scaling",
        precision.missing_loss_scaling_fields,
        also=("precision-underflow",),
    ),
    Scenario("mlp-kept-losses", "memory-leak", systems.memory_leak_losses),
    Scenario("convnet-kept-features", "memory-leak", systems.memory_leak_features),
    Scenario("convnet-steady-data-stall", "data-stall", systems.data_stall_steady),
    Scenario("mlp-bursty-data-stall", "data-stall", systems.data_stall_bursts),
    Scenario("mlp-piling-hooks", "slowdown", systems.slowdown_hooks, onset=64),
    Scenario("convnet-throttled", "slowdown", systems.slowdown_throttled, onset=150),
    Scenario("ddp-straggler", "straggler", ranks.straggler_always, ranks=2),
    Scenario("ddp-late-straggler", "straggler", ranks.straggler_later, ranks=2, onset=120),
    Scenario("ranks-of-different-birth", "rank-divergence", ranks.rank_divergence_initialisation, ranks=2, hard=True),
    Scenario("ranks-clipped-apart", "rank-divergence", ranks.rank_divergence_clip, ranks=2, onset=100, hard=True),
    Scenario("healthy-accumulation", None, loops.healthy_accumulation),
    Scenario("healthy-summed-loss", None, loops.healthy_sum_loss),
    Scenario("healthy-frozen-embedding", None, loops.healthy_frozen_embedding),
    Scenario("healthy-target-network", None, loops.healthy_target_network),
    Scenario("healthy-frozen-batchnorm", None, loops.healthy_frozen_batchnorm),
    Scenario("healthy-checkpointing", None, loops.healthy_checkpointing),
    Scenario("healthy-two-optimizers", None, loops.healthy_two_optimizers),
    Scenario("healthy-uneven-batches", None, loops.healthy_uneven_batches),
    Scenario("healthy-raw-pixels", None, data.healthy_pixels),
    Scenario("healthy-curriculum", None, data.healthy_curriculum),
    Scenario("healthy-slow-first-batch", None, data.healthy_slow_first_batch),
    Scenario("healthy-validation-pauses", None, data.healthy_validation_pauses),
    Scenario("healthy-scale-search", None, precision.healthy_scale_search),
    Scenario("healthy-bf16-autocast", None, precision.healthy_bfloat16),
    Scenario("healthy-filling-memory", None, systems.healthy_memory_warm_up),
]
