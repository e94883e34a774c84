"""Every signal that streams, with settings that serve as an example: what the conformance tests walk."""

from sonde.signals.change_point import ChangePoint
from sonde.signals.clipping import Clipping
from sonde.signals.cusum import Cusum
from sonde.signals.drift import Drift
from sonde.signals.ema import Ema
from sonde.signals.forecast import Forecast
from sonde.signals.growth import Growth
from sonde.signals.moments import Moments
from sonde.signals.oscillation import Oscillation
from sonde.signals.page_hinkley import PageHinkley
from sonde.signals.phases import Phases
from sonde.signals.plateau import Plateau
from sonde.signals.quantiles import Quantiles
from sonde.signals.robust_z import RobustZ
from sonde.signals.signal import Signal, TimedSignal
from sonde.signals.since_first import SinceFirst
from sonde.signals.trend import Trend

SIGNALS: tuple[Signal, ...] = (
    Clipping(),
    Cusum(threshold=5.0),
    Drift(),
    Ema(),
    Forecast(),
    Moments(),
    Oscillation(),
    PageHinkley(),
    Plateau(),
    Quantiles(),
    RobustZ(),
    SinceFirst(),
)

TIMED_SIGNALS: tuple[TimedSignal, ...] = (
    ChangePoint(),
    Growth(),
    Phases(),
    Trend(),
)
