"""Profiles: settings of rules for a task or architecture, in a TOML file.

A line a setting, `LOS002.warning = 9.0`, by the rule's code or name; `GEN003 = false` leaves a rule out.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sonde.core.errors import FormatError


def read_profile(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings of a profile by name, as `sonde.rules.configuring.configured` takes them.

    Raises:
        FormatError: the file is not TOML, or holds tables within a rule's.
        OSError: it cannot be read.
    """
    return parse_profile(Path(path).read_bytes(), path)


def parse_profile(data: bytes, file: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings in a profile's content; `file` is for messages.

    Raises:
        FormatError: it is not TOML, or holds tables within a rule's.
    """
    try:
        content = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{file} is not a profile in TOML: {error}") from error
    found: dict[str, Any] = {}
    for rule, said in content.items():
        if not isinstance(said, dict):
            found[rule] = said
            continue
        for setting, value in said.items():
            if isinstance(value, dict):
                raise FormatError(f"{file}: {rule}.{setting} must be a value, such as {rule}.{setting} = 9.0")
            found[f"{rule}.{setting}"] = value
    return found


def profile_text(settings: Mapping[str, float], remarks: Mapping[str, str], head: str = "") -> str:
    """A profile as text.

    Args:
        settings: Values by `CODE.setting`.
        remarks: What stands behind a setting.
        head: What stands above all.

    Example:
        >>> print(profile_text({"LOS002.warning": 9.0}, {"LOS002.warning": "6.0 by default"}, "For RNNs."), end="")
        # For RNNs.
        LOS002.warning = 9.0  # 6.0 by default
    """
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    for name, value in sorted(settings.items()):
        remark = remarks.get(name, "")
        lines.append(f"{name} = {value!r}" + (f"  # {remark}" if remark else ""))
    return "\n".join(lines) + "\n"
