"""How answers and results look: a card in JupyterLab (light and dark), the same words as plain text."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass, field

# Each kind reads without its colour: a symbol and a word say the same. The colours are for the bar at the side: they
# keep a contrast of 3:1 on JupyterLab's white and on its dark grey, and no colour has the 4.5:1 of words on both.
_LOOK = {
    "right": ("\N{CHECK MARK}", "Right", "#1b8a5a"),
    "wrong": ("\N{MULTIPLICATION X}", "Not yet", "#d1495b"),
    "error": ("!", "Your code stopped", "#d1495b"),
    "open": ("\N{WHITE CIRCLE}", "Not attempted yet", "#7a8794"),
    "prediction": ("?", "Your prediction", "#3f7fbf"),
    "unanswered": ("?", "What do you expect?", "#7a8794"),
    "compared": ("=", "Your prediction beside the result", "#3f7fbf"),
    "hint": ("\N{RIGHTWARDS ARROW}", "Hint", "#a8720a"),
}


@dataclass(frozen=True)
class Card:
    """One result to show: a kind of `_LOOK`, the name it belongs to, and lines of text.

    In `lines` and `footer`, words between backquotes are drawn as code.
    """

    kind: str
    name: str
    lines: tuple[str, ...] = ()
    footer: str = ""
    word: str = field(default="")

    @property
    def passed(self) -> bool:
        """Whether this is the card of a check that is green."""
        return self.kind == "right"

    def __repr__(self) -> str:
        symbol, word, _ = _LOOK[self.kind]
        head = f"{symbol} {self.word or word} ({self.name})"
        body = [wrapped for line in self.lines for wrapped in _wrap(line)]
        return "\n".join([head, *body, *(_wrap(self.footer) if self.footer else [])])

    def _repr_html_(self) -> str:
        symbol, word, colour = _LOOK[self.kind]
        body = "".join(f'<div style="margin-top:3px">{_inline(line)}</div>' for line in self.lines)
        small = "margin-top:4px;font-size:0.9em;opacity:0.8"
        shown_word, shown_name = html.escape(self.word or word), html.escape(self.name)
        foot = f'<div style="{small}">{_inline(self.footer)}</div>' if self.footer else ""
        return (
            f'<div role="status" style="border-left:4px solid {colour};padding:4px 0 5px 12px;margin:2px 0;'
            "max-width:46em;line-height:1.45;color:inherit;"
            'font-family:var(--jp-content-font-family,sans-serif)">'
            f'<div><span aria-hidden="true" style="font-weight:700">{symbol}</span> '
            f"<strong>{shown_word}</strong> "
            f'<span style="opacity:0.7;font-size:0.9em">{shown_name}</span></div>{body}{foot}</div>'
        )


def _wrap(line: str) -> list[str]:
    return textwrap.wrap(line, 96, initial_indent="  ", subsequent_indent="  ", break_long_words=False) or [""]


def _inline(text: str) -> str:
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return html.escape(text)
    style = 'style="font-family:var(--jp-code-font-family,monospace);font-size:0.95em;white-space:pre-wrap"'
    return "".join(
        f"<code {style}>{html.escape(piece)}</code>" if number % 2 else html.escape(piece)
        for number, piece in enumerate(pieces)
    )
