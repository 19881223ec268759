"""What CUDA_VISIBLE_DEVICES says: which physical GPU a logical number stands for."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class VisibleDevices:
    """The variable's value and its meaning; entry i is what PyTorch calls device i."""

    value: str | None
    entries: tuple[str, ...]
    notice: str | None = None

    @property
    def restricts(self) -> bool:
        """True when the variable is set, so that it decides which GPUs are visible."""
        return self.value is not None

    @property
    def mig(self) -> bool:
        """True when the variable names MIG instances (slices of one GPU)."""
        return any(entry.startswith("MIG-") for entry in self.entries)


def parse_visible_devices(value: str | None) -> VisibleDevices:
    """Read the value the way CUDA does: stop at the first entry that is not valid, a repeat hides everything.

    Source: CUDA programming guide, "CUDA environment variables"; `torch.cuda._parse_visible_devices`.
    """
    if value is None:
        return VisibleDevices(None, ())
    if not value.strip():
        return VisibleDevices(value, (), "CUDA_VISIBLE_DEVICES is set but empty, so it hides every GPU.")
    prefix = next((prefix for prefix in ("GPU-", "MIG-") if value.startswith(prefix)), None)
    entries: list[str] = []
    for raw in value.split(","):
        # CUDA reads a number as C's strtoul does: `1gpu` is 1.
        number = re.match(r"\+?\d+", raw.strip())
        if prefix is not None and raw.startswith(prefix):
            entry = raw
        elif prefix is None and number is not None:
            entry = str(int(number.group()))
        else:
            return VisibleDevices(value, tuple(entries), _stopped(raw.strip(), len(entries)))
        if entry in entries:
            return VisibleDevices(
                value, (), f"CUDA_VISIBLE_DEVICES names {entry} twice, and CUDA then hides every GPU."
            )
        entries.append(entry)
    return VisibleDevices(value, tuple(entries))


def _stopped(entry: str, kept: int) -> str:
    if entry == "-1" and kept == 0:
        return "CUDA_VISIBLE_DEVICES is -1, so it hides every GPU."
    return f"CUDA_VISIBLE_DEVICES holds {entry!r}, where CUDA stops reading: only the {kept} before it can be seen."


def changed_too_late(at_import: str | None, now: str | None, cuda_initialized: bool) -> str | None:
    """The sentence for a CUDA_VISIBLE_DEVICES that was changed after CUDA had read it, else None."""
    if not cuda_initialized or at_import == now:
        return None
    return (
        f"CUDA_VISIBLE_DEVICES is now {_shown(now)} but was {_shown(at_import)} when this process started, "
        "and CUDA reads it once: restart the kernel and set it before the first use of a GPU."
    )


def _shown(value: str | None) -> str:
    return "not set" if value is None else repr(value)
