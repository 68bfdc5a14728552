"""Checkpoints with Orbax: written in the background, the latest and the best kept, verified on restore.

A run folder holds `recipe.json`, the settings that determine the run, and `checkpoints/STEP/`. Orbax writes a
checkpoint under a temporary name and renames it when complete: a full disk or a kill leaves older ones intact.
"""

from __future__ import annotations

import contextlib
import json
import math
import operator
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxwhiten import io
from jaxwhiten.errors import REASON, FormatError, JaxwhitenError, MismatchError, optional, turning
from jaxwhiten.training.step import TrainState
from jaxwhiten.types import Fields, Json


class Checkpoints:
    """The checkpoints of one run: the `keep` latest, and the one with the highest score `best` if the run is scored.

    The recipe holds the settings that determine the run, as JSON values: data, model, objective, rates, seed. A folder
    with checkpoints of another recipe raises a MismatchError that names the differences; `overwrite` removes them.
    """

    def __init__(
        self, folder: Path, recipe: Fields, *, best: str | None = None, keep: int = 1, overwrite: bool = False
    ):
        ocp = optional("orbax.checkpoint", "train", "Training", "orbax-checkpoint")
        from orbax.checkpoint.checkpoint_managers import preservation_policy as policy

        self.folder = Path(folder).resolve()
        self._ocp = ocp
        self._best = best
        score = operator.itemgetter(best) if best else None
        policies = [policy.LatestN(keep), *([policy.BestN(get_metric_fn=score, n=1)] if score else [])]
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "recipe.json"
        settings: Json = json.loads(json.dumps(recipe))
        if overwrite and file.is_file() and io.read_json(file, dict[str, Any]) != settings:
            shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        self._manager = ocp.CheckpointManager(
            self.folder / "checkpoints",
            item_names=("state", "rest"),
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policy.AnyPreservationPolicy(policies), best_fn=score, cleanup_tmp_directories=True
            ),
        )
        self._check_recipe(settings, file)

    def _check_recipe(self, recipe: Json, file: Path) -> None:
        if self.latest is None:
            if jax.process_index() == 0:
                io.write_json(file, recipe)
            return
        old = io.read_json(file, dict[str, Any], "Use a new output folder.")
        if changes := list(_differences(old, recipe)):
            raise MismatchError(
                f"{self.folder} contains a run with different settings: {'; '.join(changes)}. Its checkpoints are"
                " unchanged. Restore these settings to resume it, or use a new output folder."
            )

    @property
    def latest(self) -> int | None:
        return self._manager.latest_step()

    @property
    def best(self) -> int | None:
        """Step of the checkpoint with the highest score, or of the latest if none was scored."""
        if self._best is None or self.latest is None:
            return self.latest
        step = self._manager.best_step()
        return step if self._manager.metrics(step)[self._best] > -math.inf else self.latest

    def save(self, state: TrainState, position: Fields, scores: Mapping[str, float] | None = None) -> None:
        """Starts writing a checkpoint in the background, after the previous one is written.

        The state is copied before this returns, so that the next step may donate it.
        """
        step = int(state.step)
        args = self._ocp.args
        if step == self.latest:
            return
        score = (scores or {}).get(self._best or "", math.nan)
        metrics = {self._best: score if math.isfinite(score) else -math.inf} if self._best else None
        rest = {"position": dict(position), "checksums": _checksums(state)}
        items = args.Composite(state=args.StandardSave(_flatten(state)), rest=args.JsonSave(rest))
        with self._writing():
            self._manager.save(step, args=items, metrics=metrics, force=True)

    def wait(self) -> None:
        with self._writing():
            self._manager.wait_until_finished()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # tensorstore, XLA and the operating system raise different types
            steps = ", ".join(map(str, sorted(self._manager.all_steps(read=True)))) or "none"
            raise JaxwhitenError(
                f"{self.folder}: a checkpoint could not be written ({_first_line(error)}). Checkpoints left intact: "
                f"steps {steps}. Free some space and run the same command to resume."
            ) from error

    def restore(self, template: TrainState, step: int | None = None) -> tuple[TrainState, Json]:
        """Reads the checkpoint of a step, by default the latest: the state and the position of the batches.

        `template` is a state with the same shapes and shardings. FormatError if the checkpoint is damaged or has
        others.
        """
        step = self.latest if step is None else step
        args = self._ocp.args
        names = _flatten(template)
        shapes = {k: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for k, x in names.items()}
        items = args.Composite(state=args.StandardRestore(shapes), rest=args.JsonRestore())
        others = {*self._manager.all_steps()} - {step}
        advice = f"Remove that folder to resume from step {max(others)}" if others else "Use a new output folder"
        folder = self.folder / "checkpoints" / str(step)
        # tensorstore, orbax and json raise different types.
        with turning(FormatError, f"{folder}: not a readable checkpoint ({REASON}). {advice}."):
            restored = self._manager.restore(step, args=items)
            leaves = [restored["state"][name] for name in names]
            state = jax.tree.unflatten(jax.tree.structure(template), leaves)
            if _checksums(state) != restored["rest"]["checksums"]:
                raise ValueError("checksums do not match: it was damaged after it was written")
            return state, restored["rest"]["position"]

    def close(self) -> None:
        """Waits for the checkpoint in progress and stops the background threads."""
        self.wait()
        self._manager.close()


def _flatten(state: TrainState) -> dict[str, jax.Array]:
    leaves = jax.tree.leaves_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _checksums(state: TrainState) -> list[int]:
    """One checksum per array. Orbax detects truncated files, but restores flipped bits without an error."""
    return [int(value) for value in jax.device_get(_checksum_leaves(jax.tree.leaves(state)))]


@jax.jit
def _checksum_leaves(leaves: list[jax.Array]) -> list[jax.Array]:
    def checksum(leaf: jax.Array) -> jax.Array:
        bits = jax.lax.bitcast_convert_type(leaf, f"uint{8 * leaf.dtype.itemsize}").ravel().astype(jnp.uint32)
        return jnp.sum(bits * (2 * jnp.arange(bits.size, dtype=jnp.uint32) + 1))  # odd weights: no flip cancels

    return [checksum(leaf) for leaf in leaves]


def _differences(old: object, new: object, where: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from _differences(old.get(name, "(absent)"), new.get(name, "(absent)"), f"{where}.{name}".lstrip("."))
    elif old != new:
        yield f"{where} was {old!r}, now {new!r}"


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition(" See full TensorStore")[0].splitlines()
    return (text[0] if text else type(error).__name__)[:300]
