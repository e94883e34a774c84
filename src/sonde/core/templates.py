"""HTML and SVG from templates, in which every text is shown letter by letter, whatever a name in a run holds."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sonde.core import printable


def templates(package: str) -> Environment:
    r"""The templates in a package's folder `templates`.

    Example:
        >>> page = templates("sonde.reports").from_string("<b>{{ name }}</b>")
        >>> page.render(name="<b onclick='x'>\x1b & \u202e")
        '<b>&lt;b onclick=&#39;x&#39;&gt;\\x1b &amp; \\u202e</b>'
    """
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _printable(value: Any) -> Any:
    return printable.lines(value) if type(value) is str else value  # what is marked as safe is of another type
