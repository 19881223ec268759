"""Show a figure in a notebook together with its words.

The words go into the metadata of the picture (`alt`), where pages made of a notebook find them. JupyterLab gives a
png no alternative text, so there they follow the picture as a text that is read and not seen. (An <img> with both
would lose its picture in every notebook that is not trusted: JupyterLab takes data from it.)
"""

from __future__ import annotations

import base64
import html
import sys
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from mgpu_utils.figures.alt_text import alt_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNSEEN = (
    'class="mgpu-figure-words" style="position:absolute;width:1px;height:1px;margin:0;overflow:hidden;'
    'clip-path:inset(50%);white-space:nowrap"'
)
_DPI = 100


def show_with_alt_text() -> None:
    """Let the inline figures of a notebook carry their words from now on; anywhere else this does nothing."""
    # Whoever drew a figure outside of IPython has not imported it, and need not.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    import matplotlib
    from matplotlib.figure import Figure

    # Another backend, of interactive figures, shows them in its own way.
    if "inline" in matplotlib.get_backend().lower():
        shell.display_formatter.ipython_display_formatter.for_type(Figure, _show)


def show_changing(figure: Figure) -> Callable[[Figure], None]:
    """Show a figure in a notebook, and return what puts another one in its place, words included."""
    picture, words = uuid4().hex, uuid4().hex
    _show(figure, picture, words)
    return lambda other: _show(other, picture, words, update=True)


def show_object(shown: object, ax: Axes) -> None:
    """Show an object that draws itself: the figure of `ax`, which is closed; its `repr` where there are no figures."""
    import matplotlib.pyplot as plt

    figure = ax.get_figure(root=True)
    assert figure is not None
    with BytesIO() as file:
        figure.savefig(file, format="png", dpi=_DPI)
        publish(file.getvalue(), alt_text(figure), plain=repr(shown))
    plt.close(figure)


def publish(
    png: Any,
    words: str,
    *,
    about: dict[str, Any] | None = None,
    plain: str | None = None,
    ids: tuple[str, str] | None = None,
    update: bool = False,
) -> None:
    """Send a picture and its words to the notebook.

    Args:
        png: bytes, or base64 text.
        about: what the notebook should know of the picture, such as its `width` in pixels.
        plain: what is shown where there are no pictures; by default the words.
        ids: names of the two outputs, by which another call with `update` replaces them.
    """
    from IPython.display import publish_display_data

    data = base64.b64encode(png).decode("ascii") if isinstance(png, bytes) else png
    read = f"<p {_UNSEEN}>Figure in words: {html.escape(words)}</p>"
    bundles: tuple[tuple[dict[str, str], dict[str, Any]], ...] = (
        (
            {"image/png": data, "text/plain": words if plain is None else plain},
            {"image/png": {**(about or {}), "alt": words}},
        ),
        ({"text/html": read, "text/plain": ""}, {}),
    )
    for place, (bundle, metadata) in enumerate(bundles):
        transient = {"transient": {"display_id": ids[place]}, "update": update} if ids else {}
        publish_display_data(bundle, metadata, **transient)


def _show(figure: Figure, *ids: str, update: bool = False) -> None:
    from IPython.core.getipython import get_ipython

    drawn: Any = get_ipython().display_formatter.formatters["image/png"](figure)
    if not drawn:
        return
    png, size = drawn if isinstance(drawn, tuple) else (drawn, {})
    publish(png, alt_text(figure), about=size, ids=ids if len(ids) == 2 else None, update=update)
