"""UPD002 updates-too-small."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.history.cosines import take_cosine, typical
from sonde.rules.history.level import has_level, left
from sonde.rules.history.progress import is_lost, is_slow, is_stuck
from sonde.rules.layer_depth import latest_matrices, latest_typical
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting, When
from sonde.signals.phases import Phase


class UpdatesTooSmallState(NamedTuple):
    """The cosines, and steps in a row in which all layers hardly moved."""

    cosines: tuple[float, ...] = ()
    num_small: int = 0
    since: int = -1
    num_nothing: int = 0
    """Steps so far, where at all of them weights moved by next to nothing; negative where they once did more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdatesTooSmall:
    """Weights hardly move in any layer, although gradients are healthy.

    What it detects:
        - The median over weight matrices of ‖Δθ‖/‖θ‖ is below half of the usual minimum at that age: 1e-3 in the first
          1,000 steps, 1e-4 up to 10,000 and 1e-5 later.
        - The learning rate is past its warmup and at least half of its peak, and gradients have not vanished.
        - It is so for `patience` steps. This is information.
        - It is a warning if the loss is stuck, or falls along a shallow straight line that would need more than 500
          steps from start to end; and the model did not come trained. Successive gradients agree as well (cosine above
          `agree`, if it was measured), or the loss is stuck and all updates together make less than `way` of the
          weights.
        - That can be said after 100 losses. It can be said after 40 if updates are below a fifth of the usual minimum
          and no more than 3% of the loss can be gone.
        - It is a warning, too, if most weight matrices looked newly made at the first measurement, more than `high` of
          the loss is left or the loss does not measure progress, and weights have not come far: all updates together
          make less than `way` of them after 100 losses, and point in one direction (cosine of neighbours above
          `straight`), or less than half of that after 200.
        - If updates have been below `nothing` of the weights from the first step on, the loss is not asked: all that it
          does is noise, and 30 steps are enough.

    Why it matters:
        The run will not be finished in the steps that it has.

    Evidence:
        `update/ratio@…`, `grad/cosine`, and how straight the loss falls.

    What to do:
        Check the clip's limit and the schedule first. Then raise the learning rate by a factor of 3 to 5.

    When it is wrong:
        - Fine-tuning moves weights little on purpose. As long as its loss comes down in a curve, the finding is
          information.
        - Very large layers need smaller updates.

    References:
        Smith, Cyclical learning rates for training neural networks, WACV 2017.
    """

    code: ClassVar[str] = "UPD002"
    name: ClassVar[str] = "updates-too-small"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("update/ratio@",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_LOW: (For("weights hardly move in any layer"), For(when=When.ALARM)),
        Cause.ADAM_EPSILON_UNDERFLOW: For(),
        Cause.CLIP_TOO_AGGRESSIVE: For(),
        Cause.VANISHING_GRADIENTS: Against("early layers hardly move"),
        Cause.NO_LEARNABLE_SIGNAL: (
            Against(),
            Against("weights hardly move: nobody can tell what there is to learn", when=When.ALARM),
        ),
        Cause.MISSING_ZERO_GRAD: Against(),
        Cause.LR_TOO_HIGH: Against(),
    }
    quiet_steps: ClassVar[int] = 200

    agree: float = 0.3
    way: float = 0.1
    patience: int = 50
    nothing: float = 1e-6
    straight: float = 0.95
    high: float = 0.4

    def init(self) -> UpdatesTooSmallState:
        """Before the first step."""
        return UpdatesTooSmallState()

    def step(self, state: UpdatesTooSmallState, look: Look) -> tuple[UpdatesTooSmallState, Sequence[Sighting]]:
        """Look at one more step."""
        run = look.run
        cosines = take_cosine(state.cosines, look)
        layers = latest_matrices(look.views, "update/ratio")
        if layers is None:
            return state._replace(cosines=cosines), ()
        floor = 5e-4 if run.step <= 1_000 else 5e-5 if run.step <= 10_000 else 5e-6
        ratio = latest_typical(look.views, "update/ratio")
        settled = run.phase is not Phase.WARMUP and run.lr >= 0.5 * run.lr_peak
        still = state.num_nothing >= 0 and 0 < ratio < self.nothing and settled
        num_nothing = state.num_nothing + 1 if still else -1
        moves_nothing = num_nothing > 0.6 * self.patience and run.is_alone and run.loss_start > 0
        healthy = run.grad_norm > 0.1 * run.grad_start or moves_nothing
        if not (0 < ratio < floor and settled and healthy) or run.is_solved:
            return UpdatesTooSmallState(cosines, num_nothing=num_nothing), ()
        since = state.since if state.num_small else run.step
        state = UpdatesTooSmallState(cosines, state.num_small + 1, since, num_nothing)
        tiny = ratio < 0.4 * floor
        slow = (is_stuck(run, soon=tiny) and not is_lost(run)) or (run.is_falling and is_slow(run))
        creeps = self._creeps(look)
        slow = slow or moves_nothing or creeps
        patience = 0.6 * self.patience if tiny else self.patience
        if not moves_nothing and (state.num_small < patience or (run.num_losses < 100 and not slow)):
            return state, ()
        cosine = typical(cosines, 1)
        tuned = run.came_trained  # small steps are meant
        agrees = creeps or not cosine < self.agree or (run.travelled < self.way and is_stuck(run))
        severity = Severity.WARNING if slow and agrees and not tuned else Severity.INFO
        message = f"a step changes weight matrices by only {amount(ratio)} of their norm (median)"
        message += f", at a learning rate of {amount(run.lr)}"
        if slow:
            start, now = amount(run.loss_start), amount(run.loss_smooth)
            message += f"; the loss began at {start} and is {now} after {run.num_losses:,} steps"
        evidence = look.evidence(f"update/ratio@{layers.names[0]}", ratio, 2 * floor)
        return state, (Sighting(severity, message, evidence=(evidence,), since=state.since),)

    def _creeps(self, look: Look) -> bool:
        """Whether weights that have everything to learn have hardly left where they began."""
        run = look.run
        if not run.fresh > 0.5 or (has_level(look) and not left(run) > self.high):
            return False
        straight = run.num_losses >= 100 and run.travelled < self.way and run.update_cosine > self.straight
        return straight or (run.num_losses >= 200 and run.travelled < self.way / 2)
