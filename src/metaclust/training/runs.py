"""A training run on disk: metrics.jsonl and checkpoint.safetensors, from which an interrupted run resumes."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import torch
from torch import Tensor

from metaclust._util import schema
from metaclust._util.distributed import ALONE, Processes
from metaclust._util.files import write_text
from metaclust._util.locks import LOCK, held
from metaclust._util.tensors import CheckpointError, read_tensors, refusing, with_prefix, write_tensors
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.weights import check_weights

SCORE = schema.number()
RUN: dict[str, schema.Check] = {
    "step": schema.whole(),
    "proto_start": schema.optional(SCORE),
    "best": SCORE,
    "best_step": schema.whole(-1),
    "last": schema.optional(SCORE),
    "stale": schema.whole(),
    "seconds": schema.number(0),
    "finished": schema.flag,
    "validations": schema.list_of(schema.list_of(schema.number())),
}
FIELDS = {"settings": schema.mapping, "groups": schema.list_of(schema.mapping), "run": schema.mapping}
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


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
            with suppress(OSError):
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
        with refusing(self.checkpoint, "a run"):
            schema.fields(header, FIELDS)
            saved, current = flattened(header["settings"]), flattened(self.settings)
        changed = sorted(name for name in saved.keys() | current.keys() if saved.get(name) != current.get(name))
        if changed:
            raise CheckpointError(
                f"{self.checkpoint} belongs to a run with other settings ({schema.some(changed)}): resume with the "
                "same settings and the same version, or train into another folder"
            )
        with refusing(self.checkpoint, "a run"):
            state = run_from(header["run"])
            weights = {name: with_prefix(tensors, f"{name}.") for name in ("model", "best")}
            for one in weights.values():
                check_weights(one, model.state_dict(), model.custom_encoder, same_dtypes=True)
            moments = moments_from(with_prefix(tensors, "optimizer."), optimizer)
            groups = groups_from(header["groups"], optimizer)
            # Nothing is changed before all of the file has been checked.
            model.load_state_dict(weights["model"])
            best.update(weights["best"])
            optimizer.load_state_dict({"state": moments, "param_groups": groups})
        return state

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
            except (ValueError, RecursionError):
                continue
            if not isinstance(record, dict) or not isinstance(step := record.get("step"), int):
                continue
            repeated = record.get("phase") == "proto-start" and state.proto_start is None
            if step <= state.step and not repeated:
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


def run_from(values: dict[str, Any]) -> Run:
    """Return the state of a run in a file, if its fields are as they must be."""
    schema.fields(values, RUN, name="run")
    pairs = [(pair[0], float(pair[1])) for pair in values["validations"] if len(pair) == 2]
    if len(pairs) != len(values["validations"]) or any(not schema.is_whole(step) for step, _ in pairs):
        raise ValueError("run.validations: it must be a list of pairs, a step and its ARI")
    return Run(**{**{name: values[name] for name in RUN}, "validations": pairs})


def moments_from(tensors: dict[str, Tensor], optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
    """Return the moments of each weight in a file, if they fit the weights."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    numbers = sorted({name.split(".")[0] for name in tensors})
    schema.check_names(tensors, {f"{number}.{key}" for number in numbers for key in MOMENTS})
    schema.check_names(set(numbers) | {str(place) for place in range(len(weights))}, map(str, range(len(weights))))
    moments: dict[int, dict[str, Tensor]] = {}
    for number in numbers:
        weight = weights[int(number)]
        step = schema.tensor(tensors, f"{number}.step", (), 0, dtypes=(torch.float32,))
        moments[int(number)] = {"step": step}
        for key in MOMENTS[1:]:
            low = 0.0 if key == "exp_avg_sq" else -math.inf
            value = schema.tensor(tensors, f"{number}.{key}", tuple(weight.shape), low, dtypes=(weight.dtype,))
            # In the memory format of the weight, which may be channels-last: fused Adam relies on equal layouts.
            moments[int(number)][key] = torch.empty_like(weight, device=value.device).copy_(value)
    return moments


def groups_from(groups: list[Any], optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the settings of the optimizer in a file: only the learning rate may differ from the optimizer's own."""
    own = json.loads(json.dumps(optimizer.state_dict()["param_groups"]))
    if len(groups) != len(own):
        raise ValueError(f"groups: it holds {len(groups)} groups of weights, where {len(own)} are expected")
    for group, expected in zip(groups, own, strict=True):
        schema.fields(group, {"lr": schema.number(0, 1e6)}, name="groups")
        names = (group.keys() | expected.keys()) - {"lr"}
        wrong = sorted(name for name in names if group.get(name) != expected.get(name))
        if wrong:
            raise ValueError(f"groups: {schema.some(wrong)} are not those of this run")
    return [{**expected, "lr": group["lr"]} for group, expected in zip(groups, own, strict=True)]


def flattened(settings: dict[str, Any]) -> dict[str, Any]:
    """Return nested settings with dotted names: {"training": {"seed": 0}} becomes {"training.seed": 0}."""
    schema.fields(settings, dict.fromkeys(settings, schema.mapping), name="settings")
    return {f"{group}.{name}": value for group, values in settings.items() for name, value in values.items()}
