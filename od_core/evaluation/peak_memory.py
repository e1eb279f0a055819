"""Most memory that this process has held, where the operating system says so (Linux)."""

from __future__ import annotations

from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory_gigabytes() -> float | None:
    """Most memory that this process has held since the last reset; None where the system does not say."""
    try:
        lines = _STATUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    peaks = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(peaks[0]) * 1024 / 1e9 if peaks else None


def reset_peak_memory() -> bool:
    """Forget the peak so far, which making the data has set; False where the system cannot."""
    try:
        _CLEAR.write_text("5", encoding="utf-8")
    except OSError:
        return False
    return True
