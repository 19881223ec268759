"""The one page a learner reads first, made from what a pack holds. Prints on one sheet."""

from __future__ import annotations

import html
from collections.abc import Sequence

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Start here: multi-GPU training with PyTorch</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 17px/1.5 system-ui, sans-serif; max-width: 42em; margin: 1.5em auto; padding: 0 1em; }}
code, pre {{ font-family: ui-monospace, monospace; font-size: 0.95em; white-space: nowrap; }}
pre {{ padding: 0.6em 0.8em; border: 1px solid #8888; border-radius: 4px; overflow-x: auto; white-space: pre; }}
li {{ margin-bottom: 0.4em; }}
@page {{ margin: 1.5cm; }}
@media print {{
  body {{ font-size: 10.5pt; line-height: 1.35; margin: 0; max-width: none; }}
  h2 {{ margin: 0.7em 0 0.3em; }}
}}
</style>
</head>
<body>
<h1>Multi-GPU training with PyTorch</h1>
<p>You run every cell on this machine. You need no GPU: two CPU cores are enough.</p>

<h2>Start</h2>
<ol>
<li>Unpack the zip file. Do not work inside it.</li>
<li>You need {pythons}. To see yours: <code>python3 --version</code>, on Windows <code>py --version</code>.</li>
<li>Open a terminal in the unpacked folder, and type on Linux and macOS
<pre>python3 start.py</pre>
on Windows
<pre>py start.py</pre></li>
<li>{install} Then JupyterLab opens in your browser, on the first notebook. Where no browser opens, copy the
address from the terminal.</li>
<li>The next time, type the same command. It opens at once. Ctrl-C in the terminal ends it.</li>
</ol>

<h2>Work</h2>
<p>{lessons}</p>
<p>Write your answer where the cell says <code># YOUR CODE HERE</code>, and run the cell. It says what is right and
what is not yet. <code>mgpu.hint("00/average")</code> gives one hint at a time; write the name of your exercise.</p>
<p>Your answers and predictions are kept in <code>notebooks/.mgpu/</code>, on this machine alone.</p>

<h2>Hand in</h2>
<p>Save the notebook (<em>File, Save</em>), and hand in the <code>.ipynb</code> file. Keep each answer in its own cell.
Cells that you add below it, in the same section, count as part of it. All else is taken from the course.</p>

<h2>When something does not work</h2>
<p>A cell does not end: press the stop button, or <em>Kernel, Restart Kernel and Run All Cells</em>. For a message
that you do not understand, search for its words in <code>docs/troubleshooting.md</code>. To install anew, delete the
folder <code>.venv</code> and start again.</p>
<p><small>{made_for}</small></p>
</body>
</html>
"""


def start_page(pythons: Sequence[str], platforms: Sequence[str], lessons: Sequence[str], offline: bool) -> str:
    """The page as HTML, with nothing in it that is loaded from elsewhere; `pythons` are the lowest releases."""
    one_or_more = f"There are {len(lessons)} notebooks" if len(lessons) > 1 else "There is one notebook"
    install = (
        "The first time, the course is installed from this folder. That takes a few minutes and no internet."
        if offline
        else "The first time, PyTorch and JupyterLab are downloaded. That takes some minutes and needs the internet."
    )
    made_for = (
        f"Made for {', '.join(platforms)} with Python {_listed([_from(python) for python in pythons])}."
        if offline
        else ""
    )
    return _PAGE.format(
        pythons=html.escape(f"Python {_listed([_from(python) for python in pythons])}"),
        install=install,
        lessons=html.escape(f"{one_or_more} in the folder notebooks. Begin with {lessons[0]}."),
        made_for=html.escape(made_for),
    )


def _from(release: str) -> str:
    """`3.12.0` is said as `3.12`, `3.11.5` as `3.11 (3.11.5 or newer)`."""
    minor, _, patch = release.rpartition(".")
    return minor if patch == "0" else f"{minor} ({release} or newer)"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
