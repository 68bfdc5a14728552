"""int8 weights of an encoder for OpenVINO, in files of a model's folder that `jaxwhiten.export.save_int8` writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from jaxwhiten import io, records
from jaxwhiten.errors import REASON, FormatError, InputError, MismatchError, ModelError, turning
from jaxwhiten.typing import Json

GRAPH = "int8.xml"
HEADER = "int8.json"
_WEIGHTS = "int8.bin"
_FILES = (HEADER, GRAPH, _WEIGHTS)
_FOLDER = "openvino"  # inside the model's folder
_AGAIN = "These are damaged int8 weights: export them again."


class _Header(TypedDict):
    weights: str  # SHA-256 of the configuration and weights that were quantized
    longest: int  # input in tokens
    sha256: dict[str, str]  # of the other files, by name


def hidden_state(number: int) -> str:
    """The name of a hidden state among the outputs of the graph."""
    return f"hidden.{number}"


def outputs_by_name(model: Any) -> dict[str, Any]:
    """All outputs of the operators of an OpenVINO model, by their names in ONNX."""
    return {name: output for op in model.get_ordered_ops() for output in op.outputs() for name in output.get_names()}


def has_int8(model: Path) -> bool:
    """Whether a model's folder has int8 weights."""
    return (model / _FOLDER / HEADER).is_file()


class Quantised(NamedTuple):
    """int8 weights in a model's folder, with a header that describes how they were made.

    Users check `files` after they have read them, so that the weights are those that the header's checksums name.
    """

    folder: Path
    header: Json
    files: io.Files = io.Files({})

    @classmethod
    def read(cls, model: Path | None, weights: str, max_length: int) -> Quantised:
        """The int8 weights in a model's folder, None for a model made in memory, if they belong to the model.

        `weights` is the SHA-256 of the model's configuration and weights.
        """
        file, graph, values = (io.below(Path(model or "."), f"{_FOLDER}/{name}", ModelError) for name in _FILES)
        if model is None or not file.is_file():
            raise InputError(
                f"{model or 'A model in memory'}: has no int8 weights. Export a folder with them: `jaxwhiten"
                " export --format int8 --sentences FILE`, or jaxwhiten.export.save_int8."
            )
        header = records.read(file, dict[str, Any], _AGAIN, error=ModelError)
        fields = records.from_json(_Header, header, file, _AGAIN, error=ModelError, others=True)
        damaged = f"{file}: damaged int8 weights ({REASON}): export them again."
        with turning(ModelError, damaged, OSError, ValueError, FormatError):
            files = io.Files.of((file, graph, values))
            io.check_version(file, header)
            for path in (graph, values):
                io.check_sha256(path, fields["sha256"].get(path.name))
        if fields["weights"] != weights:
            raise MismatchError(f"{file}: int8 weights of a different model than {model}: export them again.")
        if max_length > (longest := fields["longest"]):
            raise InputError(
                f"{file}: int8 weights for up to {longest} tokens, got max_length={max_length}: export them again."
            )
        return cls(file.parent, header, files)

    @classmethod
    def write(cls, model: Path, graph: Any, header: Json) -> None:
        """Writes an OpenVINO model with hidden states as outputs into a model's folder."""
        import openvino

        folder = Path(model) / _FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        openvino.save_model(graph, folder / GRAPH, compress_to_fp16=False)
        digests = {name: io.sha256_file(folder / name) for name in (GRAPH, _WEIGHTS)}
        io.write_json(folder / HEADER, {"format_version": io.FORMAT_VERSION, **header, "sha256": digests})

    @property
    def digest(self) -> str:
        return json.dumps(self.header["sha256"], sort_keys=True)

    def save(self, model: Path) -> None:
        """Copies the weights to another model's folder."""
        for name in _FILES:
            with io.atomic_path(Path(model) / _FOLDER / name) as temporary:
                shutil.copyfile(io.below(self.folder, name, ModelError), temporary)
                self.files.check()

    def put_into(self, model: Any, hidden_states: list[str], core: Any) -> Any:
        """An OpenVINO model of encoder and poolings with these weights instead of the encoder's float weights."""
        import openvino

        quantised = core.read_model(self.folder / GRAPH)
        outputs = outputs_by_name(model)
        places = {name: quantised.output(hidden_state(number)) for number, name in enumerate(hidden_states)}
        sources = {name: place.get_node().input_value(0) for name, place in places.items()}
        sources |= {name: quantised.input(name) for parameter in model.inputs for name in parameter.get_names()}
        for name, source in sources.items():
            fits = source.get_partial_shape().same_scheme(outputs[name].get_partial_shape())
            if not fits or source.get_element_type() != outputs[name].get_element_type() or len(quantised.inputs) != 2:
                raise ValueError(f"{source} among {len(quantised.inputs)} inputs")
            for target in outputs[name].get_target_inputs():
                target.replace_source_output(source)
        return openvino.Model(model.get_results(), quantised.get_parameters())
