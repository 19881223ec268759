"""Keep out of error reports what is private: the home folder, names of user and machine, and secrets."""

from __future__ import annotations

import getpass
import os
import re
import socket
from functools import cache

_SECRET_NAMES = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE)
# Names that many machines share tell nothing, and some of them are ordinary words.
_NOBODY = {"root", "user", "admin", "runner", "jovyan", "ubuntu", "student", "docker", "vagrant", "localhost", "linux"}


def without_private(text: str) -> str:
    """The text with `~` for the home folder, USER and HOST for their names, and *** for secrets of the environment."""
    text = without_secrets(text)
    for home in _homes():
        text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
    for name, word in _names():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", word, text)
    return text


def without_secrets(text: str) -> str:
    """The text with *** for each secret of the environment, such as a token."""
    for secret in _secrets():
        text = text.replace(secret, "***")
    return text


def _secrets() -> list[str]:
    values = {value for name, value in os.environ.items() if _SECRET_NAMES.search(name) and len(value) >= 8}
    return sorted(values, key=len, reverse=True)


def _homes() -> list[str]:
    home = os.path.expanduser("~")
    return [path for path in dict.fromkeys((home, os.path.realpath(home))) if len(path) > 1]


def tells_somebody(name: str) -> bool:
    """Whether this name of a user or a machine tells who it is, and is no ordinary word."""
    return len(name) >= 3 and name.lower() not in _NOBODY


def user_name() -> str:
    """The name of this process's user, empty where the system has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


@cache
def _names() -> list[tuple[str, str]]:
    host = socket.gethostname()
    found = {host: "HOST", host.split(".")[0]: "HOST", user_name(): "USER"}
    return [(name, word) for name, word in found.items() if tells_somebody(name)]
