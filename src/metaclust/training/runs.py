"""A training run on disk: metrics.jsonl and checkpoint.safetensors, from which an interrupted run resumes."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import torch
from torch import Tensor

from metaclust._util.distributed import ALONE, Processes
from metaclust._util.files import write_text
from metaclust._util.locks import LOCK, held
from metaclust._util.tensors import CheckpointError, read_tensors, with_prefix, write_tensors
from metaclust.model.clustering_model import ClusteringModel


@dataclass
class Run:
    """The state of a training run: everything that resuming needs besides the weights."""

    step: int = 0
    proto_start: float | None = None
    """The validation ARI of the pretrained encoder, before the first step on the ARI."""
    best: float = -1.0
    best_step: int = -1
    last: float | None = None
    stale: int = 0
    seconds: float = 0.0
    finished: bool = False
    validations: list[tuple[int, float]] = field(default_factory=list)


class RunFolder:
    """The folder of one training run; a run must be resumed with the same ``settings``."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.settings = json.loads(json.dumps(settings))
        self.checkpoint = folder / "checkpoint.safetensors"
        self.metrics = folder / "metrics.jsonl"
        self._file: TextIO | None = None
        self._lock = ExitStack()

    def open(
        self,
        model: ClusteringModel,
        optimizer: torch.optim.Optimizer,
        best: dict[str, Tensor],
        resume: bool,
        among: Processes = ALONE,
    ) -> Run:
        """Start a run, or restore the model, optimizer and best weights of an earlier one; return its state.

        With several processes, the main one prepares the folder, then all read it. No other run can use it until the
        end of the context.
        """
        with ExitStack() as lock:
            if among.main:
                self.folder.mkdir(parents=True, exist_ok=True)
                lock.enter_context(held(self.folder / LOCK, self.folder))
            state = self._open(model, optimizer, best, resume, among)
            self._lock = lock.pop_all()
        return state

    def _open(
        self,
        model: ClusteringModel,
        optimizer: torch.optim.Optimizer,
        best: dict[str, Tensor],
        resume: bool,
        among: Processes,
    ) -> Run:
        if among.main:
            self._prepare(resume)
        among.wait()
        state = self._restore(model, optimizer, best) if resume and self.checkpoint.exists() else Run()
        steps = among.gather(torch.tensor([state.step]), among.part(among.world))
        if bool((steps != steps[0]).any()):
            raise CheckpointError(
                f"{self.folder} holds steps {steps.tolist()} as seen by the processes, by rank: use a folder that "
                "all of them share"
            )
        if among.main:
            self._forget_after(state)
        return state

    def _prepare(self, resume: bool) -> None:
        """Remove unfinished files from the folder; raise an error if it holds a run not to be resumed."""
        for unfinished in self.folder.glob(f".{self.checkpoint.name}.*"):
            # Version 0.1.0 left files, later ones folders.
            shutil.rmtree(unfinished) if unfinished.is_dir() else unfinished.unlink()
        if not resume:
            if self.checkpoint.exists() or self.metrics.exists():
                raise FileExistsError(
                    f"{self.folder} holds a training run already: pass resume=True to continue, or use another folder"
                )
        elif not self.checkpoint.exists():
            self.metrics.unlink(missing_ok=True)

    def _restore(self, model: ClusteringModel, optimizer: torch.optim.Optimizer, best: dict[str, Tensor]) -> Run:
        """Restore the model, optimizer and best weights from the checkpoint; return the state of the run."""
        tensors, header = read_tensors(self.checkpoint, "run")
        saved, current = flattened(header["settings"]), flattened(self.settings)
        changed = sorted(name for name in saved.keys() | current.keys() if saved.get(name) != current.get(name))
        if changed:
            raise CheckpointError(
                f"{self.checkpoint} belongs to a run with other settings ({', '.join(changed)}): resume with the same "
                "settings, or train into another folder"
            )
        model.load_state_dict(with_prefix(tensors, "model."))
        best.update(with_prefix(tensors, "best."))
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in with_prefix(tensors, "optimizer.").items():
            index, key = name.split(".")
            weight = weights[int(index)]
            if value.shape == weight.shape:
                # In the memory format of the weight, which may be channels-last: fused Adam relies on equal layouts.
                value = torch.empty_like(weight, device=value.device, dtype=value.dtype).copy_(value)
            moments.setdefault(int(index), {})[key] = value
        optimizer.load_state_dict({"state": moments, "param_groups": header["groups"]})
        validations = [(step, ari) for step, ari in header["run"]["validations"]]
        return Run(**{**header["run"], "validations": validations})

    def save(
        self, model: ClusteringModel, optimizer: torch.optim.Optimizer, best: dict[str, Tensor], state: Run
    ) -> None:
        """Write the checkpoint."""
        saved = optimizer.state_dict()
        tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in best.items()}
        for index, moments in saved["state"].items():
            tensors |= {f"optimizer.{index}.{key}": value for key, value in moments.items()}
        header = {"kind": "run", "settings": self.settings, "groups": saved["param_groups"], "run": asdict(state)}
        write_tensors(self.checkpoint, tensors, header)

    def log(self, **record: Any) -> None:
        """Append a record to the metrics."""
        if self._file is None:
            self._file = self.metrics.open("a", encoding="utf-8")
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def _forget_after(self, state: Run) -> None:
        """Remove the metrics of steps that will be repeated."""
        if not self.metrics.exists():
            return
        kept = []
        for line in self.metrics.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            repeated = record["phase"] == "proto-start" and state.proto_start is None
            if record["step"] <= state.step and not repeated:
                kept.append(line + "\n")
        write_text(self.metrics, "".join(kept))

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.close()


def flattened(settings: dict[str, Any]) -> dict[str, Any]:
    """Return nested settings with dotted names: {"training": {"seed": 0}} becomes {"training.seed": 0}."""
    return {f"{group}.{name}": value for group, values in settings.items() for name, value in values.items()}
