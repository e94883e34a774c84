"""Every rule there is, a line each, in the order of their codes."""

from sonde.rules.activations.activations_explode import ActivationsExplode
from sonde.rules.activations.dead_units import DeadUnits
from sonde.rules.activations.non_finite_activation import NonFiniteActivation
from sonde.rules.activations.saturated_units import SaturatedUnits
from sonde.rules.activations.signal_thinned import SignalThinned
from sonde.rules.activations.variance_with_depth import VarianceWithDepth
from sonde.rules.attention.attention_entropy_collapses import AttentionEntropyCollapses
from sonde.rules.attention.attention_logits_grow import AttentionLogitsGrow
from sonde.rules.attention.embedding_norm_grows import EmbeddingNormGrows
from sonde.rules.attention.output_logits_drift import OutputLogitsDrift
from sonde.rules.data.bad_batch import BadBatch
from sonde.rules.data.constant_labels import ConstantLabels
from sonde.rules.data.contrary_labels import ContraryLabels
from sonde.rules.data.data_drift import DataDrift
from sonde.rules.data.labels_in_order import LabelsInOrder
from sonde.rules.data.no_learnable_signal import NoLearnableSignal
from sonde.rules.data.nonfinite_input import NonfiniteInput
from sonde.rules.data.unnormalised_inputs import UnnormalisedInputs
from sonde.rules.generalisation.epoch_assessment import EpochAssessment
from sonde.rules.generalisation.gap_from_start import GapFromStart
from sonde.rules.generalisation.overfitting import Overfitting
from sonde.rules.generalisation.training_held_back import TrainingHeldBack
from sonde.rules.generalisation.underfitting import Underfitting
from sonde.rules.generalisation.validation_stalls import ValidationStalls
from sonde.rules.generalisation.validation_without_gain import ValidationWithoutGain
from sonde.rules.gradients.always_clipped import AlwaysClipped
from sonde.rules.gradients.batches_scatter import BatchesScatter
from sonde.rules.gradients.exploding_gradients import ExplodingGradients
from sonde.rules.gradients.few_steps_an_epoch import FewStepsAnEpoch
from sonde.rules.gradients.gain_drift import GainDrift
from sonde.rules.gradients.gradient_imbalance import GradientImbalance
from sonde.rules.gradients.gradient_shape import GradientShape
from sonde.rules.gradients.gradient_spike import GradientSpike
from sonde.rules.gradients.gradients_persist import GradientsPersist
from sonde.rules.gradients.gradients_reverse import GradientsReverse
from sonde.rules.gradients.gradients_uncorrelated import GradientsUncorrelated
from sonde.rules.gradients.gradients_vanish import GradientsVanish
from sonde.rules.gradients.gradients_vanish_with_depth import GradientsVanishWithDepth
from sonde.rules.gradients.no_gradient import NoGradient
from sonde.rules.gradients.noise_dominated import NoiseDominated
from sonde.rules.gradients.non_finite_gradient import NonFiniteGradient
from sonde.rules.loops.accumulation_not_scaled import AccumulationNotScaled
from sonde.rules.loops.batchnorm_tiny_batch import BatchnormTinyBatch
from sonde.rules.loops.clip_before_unscale import ClipBeforeUnscale
from sonde.rules.loops.disconnected_parameter import DisconnectedParameter
from sonde.rules.loops.double_softmax import DoubleSoftmax
from sonde.rules.loops.eval_mode_in_training import EvalModeInTraining
from sonde.rules.loops.frozen_layer import FrozenLayer
from sonde.rules.loops.missing_zero_grad import MissingZeroGrad
from sonde.rules.loops.parameter_not_in_optimizer import ParameterNotInOptimizer
from sonde.rules.loops.summed_loss import SummedLoss
from sonde.rules.loops.symmetric_units import SymmetricUnits
from sonde.rules.loops.train_mode_in_evaluation import TrainModeInEvaluation
from sonde.rules.loops.zero_grad_misplaced import ZeroGradMisplaced
from sonde.rules.losses.initial_loss_high import InitialLossHigh
from sonde.rules.losses.loss_diverges import LossDiverges
from sonde.rules.losses.loss_oscillates import LossOscillates
from sonde.rules.losses.loss_plateau import LossPlateau
from sonde.rules.losses.loss_spike import LossSpike
from sonde.rules.losses.loss_stuck import LossStuck
from sonde.rules.losses.loss_swells import LossSwells
from sonde.rules.losses.noise_floor import NoiseFloor
from sonde.rules.losses.non_finite_loss import NonFiniteLoss
from sonde.rules.losses.nonfinite_out_of_calm import NonfiniteOutOfCalm
from sonde.rules.losses.settles_high import SettlesHigh
from sonde.rules.losses.slow_progress import SlowProgress
from sonde.rules.losses.statistical_anomaly import StatisticalAnomaly
from sonde.rules.optimisers.epsilon_underflow import EpsilonUnderflow
from sonde.rules.optimisers.loss_scale_collapse import LossScaleCollapse
from sonde.rules.optimisers.optimizer_state_lost import OptimizerStateLost
from sonde.rules.optimisers.second_moment_behind import SecondMomentBehind
from sonde.rules.optimisers.second_moment_health import SecondMomentHealth
from sonde.rules.precision.bare_logarithm import BareLogarithm
from sonde.rules.precision.gradients_underflow import GradientsUnderflow
from sonde.rules.precision.loss_near_limit import LossNearLimit
from sonde.rules.precision.overflow_near import OverflowNear
from sonde.rules.ranks.rank_divergence import RankDivergence
from sonde.rules.ranks.straggler import Straggler
from sonde.rules.rule import Rule
from sonde.rules.schedules.first_epoch_spiked import FirstEpochSpiked
from sonde.rules.schedules.first_epoch_still import FirstEpochStill
from sonde.rules.schedules.lr_jump import LrJump
from sonde.rules.schedules.lr_never_decayed import LrNeverDecayed
from sonde.rules.schedules.lr_vanished import LrVanished
from sonde.rules.schedules.rate_runs_away import RateRunsAway
from sonde.rules.schedules.sawtooth_descent import SawtoothDescent
from sonde.rules.schedules.schedule_per_batch import SchedulePerBatch
from sonde.rules.schedules.trouble_in_warmup import TroubleInWarmup
from sonde.rules.systems.data_bound import DataBound
from sonde.rules.systems.gpu_idles import GpuIdles
from sonde.rules.systems.memory_leak import MemoryLeak
from sonde.rules.systems.memory_near_limit import MemoryNearLimit
from sonde.rules.systems.memory_runs_out import MemoryRunsOut
from sonde.rules.systems.out_of_memory import OutOfMemory
from sonde.rules.systems.step_time_grows import StepTimeGrows
from sonde.rules.systems.throughput_drop import ThroughputDrop
from sonde.rules.systems.watching_problem import WatchingProblem
from sonde.rules.updates.layer_not_learning import LayerNotLearning
from sonde.rules.updates.nothing_moves import NothingMoves
from sonde.rules.updates.update_jump import UpdateJump
from sonde.rules.updates.updates_rounded_away import UpdatesRoundedAway
from sonde.rules.updates.updates_too_large import UpdatesTooLarge
from sonde.rules.updates.updates_too_small import UpdatesTooSmall
from sonde.rules.weights.identical_units import IdenticalUnits
from sonde.rules.weights.non_finite_weight import NonFiniteWeight
from sonde.rules.weights.weight_norm_jump import WeightNormJump
from sonde.rules.weights.weight_norms_diverge import WeightNormsDiverge
from sonde.rules.weights.weights_compound import WeightsCompound
from sonde.rules.weights.weights_shrink import WeightsShrink
from sonde.rules.weights.weights_start_over import WeightsStartOver
from sonde.rules.weights.weights_swell import WeightsSwell

RULES: tuple[type[Rule], ...] = (
    DeadUnits,
    SaturatedUnits,
    ActivationsExplode,
    NonFiniteActivation,
    VarianceWithDepth,
    SignalThinned,
    AttentionLogitsGrow,
    AttentionEntropyCollapses,
    OutputLogitsDrift,
    EmbeddingNormGrows,
    NonfiniteInput,
    BadBatch,
    UnnormalisedInputs,
    DataDrift,
    ConstantLabels,
    NoLearnableSignal,
    ContraryLabels,
    LabelsInOrder,
    Straggler,
    RankDivergence,
    Overfitting,
    Underfitting,
    GapFromStart,
    EpochAssessment,
    ValidationStalls,
    TrainingHeldBack,
    ValidationWithoutGain,
    ExplodingGradients,
    GradientSpike,
    GradientsVanishWithDepth,
    GradientsVanish,
    NonFiniteGradient,
    GradientImbalance,
    GradientShape,
    GainDrift,
    GradientsReverse,
    GradientsPersist,
    GradientsUncorrelated,
    AlwaysClipped,
    NoiseDominated,
    NoGradient,
    FewStepsAnEpoch,
    BatchesScatter,
    MissingZeroGrad,
    ZeroGradMisplaced,
    ParameterNotInOptimizer,
    DisconnectedParameter,
    EvalModeInTraining,
    TrainModeInEvaluation,
    DoubleSoftmax,
    SummedLoss,
    AccumulationNotScaled,
    ClipBeforeUnscale,
    FrozenLayer,
    SymmetricUnits,
    BatchnormTinyBatch,
    NonFiniteLoss,
    LossSpike,
    LossDiverges,
    LossStuck,
    LossPlateau,
    LossOscillates,
    SlowProgress,
    InitialLossHigh,
    NoiseFloor,
    StatisticalAnomaly,
    SettlesHigh,
    LossSwells,
    NonfiniteOutOfCalm,
    GradientsUnderflow,
    OverflowNear,
    LossNearLimit,
    BareLogarithm,
    EpsilonUnderflow,
    SecondMomentBehind,
    LossScaleCollapse,
    OptimizerStateLost,
    SecondMomentHealth,
    LrJump,
    LrVanished,
    LrNeverDecayed,
    TroubleInWarmup,
    SchedulePerBatch,
    SawtoothDescent,
    RateRunsAway,
    FirstEpochStill,
    FirstEpochSpiked,
    ThroughputDrop,
    StepTimeGrows,
    DataBound,
    MemoryLeak,
    MemoryNearLimit,
    WatchingProblem,
    OutOfMemory,
    MemoryRunsOut,
    GpuIdles,
    UpdatesTooLarge,
    UpdatesTooSmall,
    LayerNotLearning,
    UpdateJump,
    UpdatesRoundedAway,
    NothingMoves,
    NonFiniteWeight,
    WeightNormJump,
    WeightNormsDiverge,
    WeightsShrink,
    IdenticalUnits,
    WeightsSwell,
    WeightsCompound,
    WeightsStartOver,
)
