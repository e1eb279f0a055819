"""Arrays in a file of a store: what parts hand to each other and to the driver, all of it public."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from od_core.archive.store import Store
from od_core.errors import OdError

Arrays = dict[str, NDArray[Any]]


def save_arrays(store: Store, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Keep arrays of one dimension, unless they are kept already; what is made again is the same."""
    columns = [pa.LargeListArray.from_arrays(np.array([0, len(array)]), pa.array(array)) for array in arrays.values()]
    batch = pa.record_batch(columns, names=list(arrays))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    store.create_if_absent(name, sink.getvalue(), durable=False)


def load_arrays(store: Store, name: str) -> Arrays:
    """The arrays of a file by their names, not to be changed. Raises OdError where it is absent, or not whole."""
    try:
        batch = pa.ipc.open_file(store.read(name)).get_batch(0)
    except (pa.ArrowInvalid, OSError):
        raise OdError(
            "OD-STORE-CUT",
            f"{name} in the store is not whole",
            next_step="run the whole release again; its measurements are read back, nothing is drawn twice",
            spent="what was set aside before stays charged",
        ) from None
    return {name: batch[name].flatten().to_numpy() for name in batch.schema.names}
