"""Texts of a run on a page of HTML or in a picture of SVG."""

import html

from sonde.core import printable


def escape(text: str) -> str:
    r"""The text as an element's content or an attribute's value: shown as it is, letter by letter.

    Example:
        >>> escape("<b onclick='x'>\x1b & \u202e")
        '&lt;b onclick=&#x27;x&#x27;&gt;\\x1b &amp; \\u202e'
    """
    return html.escape(printable.lines(text), quote=True)
