"""Ray as a :class:`metaclust.scale.Engine`, for comparison with Dask; not part of the package."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from metaclust.scale.engines import in_one_thread


class RayEngine:
    """A context manager that runs Ray on this machine with ``workers`` processes."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.ray: Any = None
        self.run: Any = None

    def submit(self, function: Callable[..., Any], *values: Any) -> Any:
        return self.run.remote(function, *values)

    def finished(self, handles: Sequence[Any]) -> Iterator[int]:
        places, left = {handle: place for place, handle in enumerate(handles)}, list(handles)
        while left:
            done, left = self.ray.wait(left, num_returns=1, fetch_local=False)
            yield from (places[handle] for handle in done)

    def result(self, handle: Any) -> Any:
        return self.ray.get(handle)

    def __enter__(self) -> RayEngine:
        import ray

        self.ray = ray
        ray.init(num_cpus=self.workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        self.run = ray.remote(max_retries=-1)(in_one_thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ray.shutdown()
