"""DLPack: arrays of other libraries, in and out, without a copy."""

from __future__ import annotations

from typing import Any

from .memory import numpy


def from_dlpack(array: Any) -> Any:
    """A NumPy array over the memory of an object with `__dlpack__`, such as a tensor.

    Errors: ValueError if its memory is not the processor's, ImportError without NumPy, and
    BufferError of the exporting library.
    """
    device = array.__dlpack_device__() if hasattr(array, "__dlpack_device__") else (1, 0)
    if device[0] not in (1, 3):  # kDLCPU, kDLCUDAHost
        raise ValueError(
            f"the array lies in memory of device {tuple(device)}; copy it to the processor's first"
        )
    return numpy().from_dlpack(array)
