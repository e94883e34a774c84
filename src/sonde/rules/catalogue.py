"""Every rule there is: Sonde's own, a line each, and those of packages that declare entry points in `sonde.rules`."""

import functools
from collections.abc import Mapping
from typing import NamedTuple

from sonde.core.errors import PluginError
from sonde.core.plugins import Door, Owner
from sonde.rules.rule import Rule
from sonde.rules.shape import check

DOOR = Door(
    group="sonde.rules",
    kind="rule",
    builtins={
        "ACT001": "sonde.rules.activations.dead_units:DeadUnits",
        "ACT002": "sonde.rules.activations.saturated_units:SaturatedUnits",
        "ACT003": "sonde.rules.activations.activations_explode:ActivationsExplode",
        "ACT004": "sonde.rules.activations.non_finite_activation:NonFiniteActivation",
        "ACT005": "sonde.rules.activations.variance_with_depth:VarianceWithDepth",
        "ACT006": "sonde.rules.activations.signal_thinned:SignalThinned",
        "ATT001": "sonde.rules.attention.attention_logits_grow:AttentionLogitsGrow",
        "ATT002": "sonde.rules.attention.attention_entropy_collapses:AttentionEntropyCollapses",
        "ATT003": "sonde.rules.attention.output_logits_drift:OutputLogitsDrift",
        "ATT004": "sonde.rules.attention.embedding_norm_grows:EmbeddingNormGrows",
        "DAT001": "sonde.rules.data.nonfinite_input:NonfiniteInput",
        "DAT002": "sonde.rules.data.bad_batch:BadBatch",
        "DAT003": "sonde.rules.data.unnormalised_inputs:UnnormalisedInputs",
        "DAT004": "sonde.rules.data.data_drift:DataDrift",
        "DAT005": "sonde.rules.data.constant_labels:ConstantLabels",
        "DAT006": "sonde.rules.data.no_learnable_signal:NoLearnableSignal",
        "DAT007": "sonde.rules.data.contrary_labels:ContraryLabels",
        "DAT008": "sonde.rules.data.labels_in_order:LabelsInOrder",
        "DST001": "sonde.rules.ranks.straggler:Straggler",
        "DST002": "sonde.rules.ranks.rank_divergence:RankDivergence",
        "GEN001": "sonde.rules.generalisation.overfitting:Overfitting",
        "GEN002": "sonde.rules.generalisation.underfitting:Underfitting",
        "GEN003": "sonde.rules.generalisation.gap_from_start:GapFromStart",
        "GEN004": "sonde.rules.generalisation.epoch_assessment:EpochAssessment",
        "GEN005": "sonde.rules.generalisation.validation_stalls:ValidationStalls",
        "GEN006": "sonde.rules.generalisation.training_held_back:TrainingHeldBack",
        "GEN007": "sonde.rules.generalisation.validation_without_gain:ValidationWithoutGain",
        "GRD001": "sonde.rules.gradients.exploding_gradients:ExplodingGradients",
        "GRD002": "sonde.rules.gradients.gradient_spike:GradientSpike",
        "GRD003": "sonde.rules.gradients.gradients_vanish_with_depth:GradientsVanishWithDepth",
        "GRD004": "sonde.rules.gradients.gradients_vanish:GradientsVanish",
        "GRD005": "sonde.rules.gradients.non_finite_gradient:NonFiniteGradient",
        "GRD006": "sonde.rules.gradients.gradient_imbalance:GradientImbalance",
        "GRD007": "sonde.rules.gradients.gradient_shape:GradientShape",
        "GRD008": "sonde.rules.gradients.gain_drift:GainDrift",
        "GRD009": "sonde.rules.gradients.gradients_reverse:GradientsReverse",
        "GRD010": "sonde.rules.gradients.gradients_persist:GradientsPersist",
        "GRD011": "sonde.rules.gradients.gradients_uncorrelated:GradientsUncorrelated",
        "GRD012": "sonde.rules.gradients.always_clipped:AlwaysClipped",
        "GRD013": "sonde.rules.gradients.noise_dominated:NoiseDominated",
        "GRD014": "sonde.rules.gradients.no_gradient:NoGradient",
        "GRD015": "sonde.rules.gradients.few_steps_an_epoch:FewStepsAnEpoch",
        "GRD016": "sonde.rules.gradients.batches_scatter:BatchesScatter",
        "LOP001": "sonde.rules.loops.missing_zero_grad:MissingZeroGrad",
        "LOP002": "sonde.rules.loops.zero_grad_misplaced:ZeroGradMisplaced",
        "LOP003": "sonde.rules.loops.parameter_not_in_optimizer:ParameterNotInOptimizer",
        "LOP004": "sonde.rules.loops.disconnected_parameter:DisconnectedParameter",
        "LOP005": "sonde.rules.loops.eval_mode_in_training:EvalModeInTraining",
        "LOP006": "sonde.rules.loops.train_mode_in_evaluation:TrainModeInEvaluation",
        "LOP007": "sonde.rules.loops.double_softmax:DoubleSoftmax",
        "LOP008": "sonde.rules.loops.summed_loss:SummedLoss",
        "LOP009": "sonde.rules.loops.accumulation_not_scaled:AccumulationNotScaled",
        "LOP010": "sonde.rules.loops.clip_before_unscale:ClipBeforeUnscale",
        "LOP011": "sonde.rules.loops.frozen_layer:FrozenLayer",
        "LOP012": "sonde.rules.loops.symmetric_units:SymmetricUnits",
        "LOP013": "sonde.rules.loops.batchnorm_tiny_batch:BatchnormTinyBatch",
        "LOP014": "sonde.rules.loops.targets_are_inputs:TargetsAreInputs",
        "LOS001": "sonde.rules.losses.non_finite_loss:NonFiniteLoss",
        "LOS002": "sonde.rules.losses.loss_spike:LossSpike",
        "LOS003": "sonde.rules.losses.loss_diverges:LossDiverges",
        "LOS004": "sonde.rules.losses.loss_stuck:LossStuck",
        "LOS005": "sonde.rules.losses.loss_plateau:LossPlateau",
        "LOS006": "sonde.rules.losses.loss_oscillates:LossOscillates",
        "LOS007": "sonde.rules.losses.slow_progress:SlowProgress",
        "LOS008": "sonde.rules.losses.initial_loss_high:InitialLossHigh",
        "LOS009": "sonde.rules.losses.noise_floor:NoiseFloor",
        "LOS010": "sonde.rules.losses.statistical_anomaly:StatisticalAnomaly",
        "LOS011": "sonde.rules.losses.settles_high:SettlesHigh",
        "LOS012": "sonde.rules.losses.loss_swells:LossSwells",
        "LOS013": "sonde.rules.losses.nonfinite_out_of_calm:NonfiniteOutOfCalm",
        "NUM001": "sonde.rules.precision.gradients_underflow:GradientsUnderflow",
        "NUM002": "sonde.rules.precision.overflow_near:OverflowNear",
        "NUM003": "sonde.rules.precision.loss_near_limit:LossNearLimit",
        "NUM004": "sonde.rules.precision.bare_logarithm:BareLogarithm",
        "OPT001": "sonde.rules.optimisers.epsilon_underflow:EpsilonUnderflow",
        "OPT002": "sonde.rules.optimisers.second_moment_behind:SecondMomentBehind",
        "OPT003": "sonde.rules.optimisers.loss_scale_collapse:LossScaleCollapse",
        "OPT004": "sonde.rules.optimisers.optimizer_state_lost:OptimizerStateLost",
        "OPT005": "sonde.rules.optimisers.second_moment_health:SecondMomentHealth",
        "SCH001": "sonde.rules.schedules.lr_jump:LrJump",
        "SCH002": "sonde.rules.schedules.lr_vanished:LrVanished",
        "SCH003": "sonde.rules.schedules.lr_never_decayed:LrNeverDecayed",
        "SCH004": "sonde.rules.schedules.trouble_in_warmup:TroubleInWarmup",
        "SCH005": "sonde.rules.schedules.schedule_per_batch:SchedulePerBatch",
        "SCH006": "sonde.rules.schedules.sawtooth_descent:SawtoothDescent",
        "SCH007": "sonde.rules.schedules.rate_runs_away:RateRunsAway",
        "SCH008": "sonde.rules.schedules.first_epoch_still:FirstEpochStill",
        "SCH009": "sonde.rules.schedules.first_epoch_spiked:FirstEpochSpiked",
        "SYS001": "sonde.rules.systems.throughput_drop:ThroughputDrop",
        "SYS002": "sonde.rules.systems.step_time_grows:StepTimeGrows",
        "SYS003": "sonde.rules.systems.data_bound:DataBound",
        "SYS004": "sonde.rules.systems.memory_leak:MemoryLeak",
        "SYS005": "sonde.rules.systems.memory_near_limit:MemoryNearLimit",
        "SYS006": "sonde.rules.systems.watching_problem:WatchingProblem",
        "SYS007": "sonde.rules.systems.out_of_memory:OutOfMemory",
        "SYS008": "sonde.rules.systems.memory_runs_out:MemoryRunsOut",
        "SYS009": "sonde.rules.systems.gpu_idles:GpuIdles",
        "UPD001": "sonde.rules.updates.updates_too_large:UpdatesTooLarge",
        "UPD002": "sonde.rules.updates.updates_too_small:UpdatesTooSmall",
        "UPD003": "sonde.rules.updates.layer_not_learning:LayerNotLearning",
        "UPD004": "sonde.rules.updates.update_jump:UpdateJump",
        "UPD005": "sonde.rules.updates.updates_rounded_away:UpdatesRoundedAway",
        "UPD006": "sonde.rules.updates.nothing_moves:NothingMoves",
        "WGT001": "sonde.rules.weights.non_finite_weight:NonFiniteWeight",
        "WGT002": "sonde.rules.weights.weight_norm_jump:WeightNormJump",
        "WGT003": "sonde.rules.weights.weight_norms_diverge:WeightNormsDiverge",
        "WGT004": "sonde.rules.weights.weights_shrink:WeightsShrink",
        "WGT005": "sonde.rules.weights.identical_units:IdenticalUnits",
        "WGT006": "sonde.rules.weights.weights_swell:WeightsSwell",
        "WGT007": "sonde.rules.weights.weights_compound:WeightsCompound",
        "WGT008": "sonde.rules.weights.weights_start_over:WeightsStartOver",
        "WGT009": "sonde.rules.weights.weights_start_large:WeightsStartLarge",
        "WGT010": "sonde.rules.weights.weights_start_small:WeightsStartSmall",
    },
    accepts=check,
)
"""The name of an entry point is the code of its rule."""


class Catalogue(NamedTuple):
    """The rules that can be applied.

    Attributes:
        rules: In the order of their codes.
        owners: Of each rule that is not Sonde's own, by code: the package that it comes with.
        problems: One for each rule of a package that is left out, with the reason.
    """

    rules: tuple[type[Rule], ...]
    owners: Mapping[str, Owner]
    problems: tuple[PluginError, ...]


def load() -> Catalogue:
    """The catalogue, from the packages that are installed now. No package keeps a rule of another one out."""
    loaded = DOOR.load_all()
    problems = list(loaded.problems)
    taken: dict[str, str] = {}
    kept: dict[str, type[Rule]] = {}
    for code, rule in sorted(loaded.members.items(), key=lambda item: (item[0] in loaded.owners, item[0])):
        whose = f"the rule {code!r} of {loaded.owners.get(code, 'Sonde')}"
        if rule.code != code:
            problems.append(PluginError(f"{whose} has the code {rule.code!r}: its entry point must have that name."))
        elif rule.name in taken:
            problems.append(PluginError(f"{whose} is called {rule.name!r}, as {taken[rule.name]} is: rename it."))
        else:
            taken[rule.name], kept[code] = code, rule
    owners = {code: owner for code, owner in loaded.owners.items() if code in kept}
    return Catalogue(tuple(kept[code] for code in sorted(kept)), owners, tuple(problems))


catalogue = functools.cache(load)
"""The same, looked for once in a process."""


def all_rules() -> tuple[type[Rule], ...]:
    """Every rule that can be applied, in the order of their codes."""
    return catalogue().rules


def rule_of(code: str) -> type[Rule] | None:
    """The rule of that code; None where there is none, as of a run that was recorded with other packages."""
    return next((rule for rule in all_rules() if rule.code == code), None)


@functools.cache
def own_rules() -> tuple[type[Rule], ...]:
    """Sonde's own rules, in the order of their codes: what its documents are about, and its weights are fitted to."""
    return tuple(rule for rule in all_rules() if rule.code in DOOR.builtins)
