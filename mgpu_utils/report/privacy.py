"""Keep what names a person or a machine out of a page: paths, the host's and the user's name, and secrets."""

from __future__ import annotations

import re
import socket

from mgpu_utils.private_text import tells_somebody, user_name, without_secrets

_PATH = re.compile(r"(?:file://|(?<![\w./~]))~?(?:/[\w.@+-]+){2,}|\b[A-Za-z]:[\\/]+[^\s'\"]+[\\/][^\s'\"]+")


def without_names(text: str) -> str:
    """Return ``text`` with each absolute path cut to its last part, and host and user name and secrets replaced."""
    text = _PATH.sub(_last_part, without_secrets(text))
    for name, word in ((_host(), "HOST"), (_user(), "USER")):
        if tells_somebody(name):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", word, text)
    return text


def _last_part(match: re.Match[str]) -> str:
    return "…/" + re.split(r"[/\\]", match.group())[-1]


def _host() -> str:
    return socket.gethostname().split(".")[0]


def _user() -> str:
    return user_name()
