"""For processes that a test starts: permissions that hold for root too."""

import ctypes
import os


def without_privileges() -> None:
    """Root may write anywhere, unless it gives up the capability to (kept from what it then executes)."""
    if os.getuid() == 0:
        drop_from_bounding_set = 24  # PR_CAPBSET_DROP
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(drop_from_bounding_set, capability, 0, 0, 0)
