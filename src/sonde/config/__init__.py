"""Configuration: what holds where no argument says otherwise, and where each setting came from."""

from sonde.config.merging import ARGUMENT, Effective, effective
from sonde.config.schema import Cadence, Config, Probes

__all__ = ["ARGUMENT", "Cadence", "Config", "Effective", "Probes", "effective"]
