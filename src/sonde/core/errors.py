"""What a caller may catch.

```
SondeError
├── StoreError                a run cannot be read or written
│   ├── RunNotFound           no run at that path
│   ├── RunUnreadable         something is there, but it is not a run that this version can read
│   │   └── SchemaTooNew      it was written by a newer Sonde
│   ├── RunNotWritable        the folder refuses to be written
│   └── RunBusy               another process is recording into it
├── TagNotFound (KeyError)    the run has no such series
├── FormatError (ValueError)  text or JSON that is not what it claims to be
├── SettingError (ValueError) a setting that does not exist, or cannot have its value
├── MissingExtra (ImportError) an optional package is not installed
└── PluginError               a third party's plug-in does not load
```

`ValueError` and `TypeError` are raised for wrong arguments; `assert` guards Sonde's own invariants.
"""


class SondeError(Exception):
    """Anything that Sonde raises on purpose and that is not a wrong argument."""


class StoreError(SondeError):
    """A run cannot be read or written."""


class RunNotFound(StoreError):
    """There is no run at the given path."""


class RunUnreadable(StoreError):
    """Something is at the path, but it is not a run that this version can read."""


class SchemaTooNew(RunUnreadable):
    """The run was written by a newer version of Sonde."""


class RunNotWritable(StoreError):
    """The folder of the run refuses to be written."""


class RunBusy(StoreError):
    """Another process is recording into the run."""


class TagNotFound(SondeError, KeyError):
    """The run has no series of that name."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0]) if self.args else ""


class FormatError(SondeError, ValueError):
    """Text or JSON is not what it claims to be."""


class SettingError(SondeError, ValueError):
    """A setting does not exist, or cannot have the value that it was given.

    Args:
        trouble: What is wrong; with a key, the rest of a sentence that begins with it.
        key: The setting, such as "alerts.slack.url".
    """

    def __init__(self, trouble: str, key: str = "") -> None:
        super().__init__(trouble)
        self.trouble, self.key = trouble, key

    def __str__(self) -> str:
        return f"`{self.key}` {self.trouble}" if self.key else self.trouble


class MissingExtra(SondeError, ImportError):
    """An optional package is not installed; the message names the command that installs it."""


class PluginError(SondeError):
    """A third party's plug-in does not load or is not of the expected kind."""
