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


class MissingExtra(SondeError, ImportError):
    """An optional package is not installed; the message names the command that installs it."""


class PluginError(SondeError):
    """A third party's plug-in does not load or is not of the expected kind."""
