"""What one check found: a word for its state, a sentence, and the cure where there is one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["ok", "note", "warning", "broken"]
STATES: tuple[State, ...] = ("ok", "note", "warning", "broken")
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@]+@")


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    `note`: good to know, nothing to mend. `warning`: the course works, but not in every part or not at full speed.
    `broken`: the course does not work here until it is mended.
    """

    name: str
    state: State
    sentence: str
    cure: str | None = None

    def to_dict(self) -> dict[str, str | None]:
        """The finding as JSON-able data."""
        return asdict(self)


def guarded(name: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """What `check` finds; a check that fails itself is a finding too."""
    try:
        return check()
    except Exception as error:
        sentence = f"this check failed itself ({type(error).__name__}: {foreign(str(error))})."
        return [Finding(name, "warning", sentence, "The other lines hold; please report this one.")]


def foreign(text: str) -> str:
    """Text that others wrote, on one line and short, without paths, host name, user name or credentials."""
    from mgpu_utils.report.privacy import without_names

    line = " ".join(_CREDENTIALS.sub("", without_names(text)).split())
    return line if len(line) <= 200 else line[:197] + "..."


def report(findings: list[Finding], seconds: float) -> str:
    """The findings as text: one line each, a cure below the line it belongs to, and a summary at the end."""
    width = max([len(finding.name) for finding in findings], default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<8} {finding.name:<{width}}  {finding.sentence}")
        if finding.cure:
            # A note needs no cure; what stands there is for those who want it otherwise.
            word = "Tip" if finding.state == "note" else "Cure"
            lines.append(f"{'':<8} {'':<{width}}  {word}: {finding.cure}")
    return "\n".join([*lines, "", f"{summary(findings)} ({seconds:.1f} s)"])


def summary(findings: list[Finding]) -> str:
    """One sentence: is something broken, and how many findings there are of each state."""
    counts = count(findings)
    broken = [finding.name for finding in findings if finding.state == "broken"]
    first = f"Broken: {', '.join(broken)}." if broken else "Nothing is broken."
    parts = [f"{counts['ok']} ok"]
    parts += [f"{counts[state]} {state}{'s' if counts[state] != 1 else ''}" for state in ("note", "warning")]
    return f"{first} {', '.join([*parts, str(counts['broken']) + ' broken'])}."


def count(findings: list[Finding]) -> dict[str, int]:
    """How many findings there are of each state."""
    return {state: sum(finding.state == state for finding in findings) for state in STATES}
