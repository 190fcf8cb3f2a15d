"""Pages of one file: templates filled in, pictures and data put into them, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from importlib.resources import files
from typing import Any

from PIL import Image


def render(template: str, style: str, **values: Any) -> str:
    """The page that a template makes of `values`; all text in them is escaped.

    `style` is a style sheet of this package, which follows the common one. In templates, ``source`` is another file of
    the package, ``markup`` marks text that is not to be escaped, and ``fingerprint`` names a text for a
    Content-Security-Policy.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError("pages need jinja2: pip install 'higsfa[plots]'") from error
    environment = Environment(
        loader=PackageLoader("higsfa.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"markup": Markup, "source": source, "fingerprint": _fingerprint}
    return environment.get_template(template).render(style=source("base.css") + source(style), **values)


def source(name: str) -> Any:
    """A file of this package, not to be escaped."""
    from markupsafe import Markup

    return Markup((files("higsfa.report") / name).read_text(encoding="utf-8"))


def _fingerprint(text: str) -> str:
    """As a Content-Security-Policy names the one script or style that it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def json_in_html(data: Any) -> str:
    """JSON in which no character can end the script element it stands in, or begin a comment there."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def png_address(picture: Image.Image) -> str:
    """A picture as a data address."""
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
