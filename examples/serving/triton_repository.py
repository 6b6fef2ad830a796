"""A model repository for Triton from the ONNX files of evenhand.export.onnx.

The repository has one folder for each model: ``NAME/config.pbtxt`` and ``NAME/1/model.onnx``. A request may have
any number of rows, so ``max_batch_size`` is 0 and the first dimension of every tensor is -1.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import onnxruntime

TYPES = {
    "tensor(double)": "TYPE_FP64",
    "tensor(int64)": "TYPE_INT64",
    "tensor(string)": "TYPE_STRING",
    "tensor(bool)": "TYPE_BOOL",
}


def add_model(onnx_file: str | Path, repository: str | Path, name: str, version: int = 1) -> Path:
    """Put an ONNX file into a model repository, with a matching configuration; return its folder."""
    folder = Path(repository) / name
    (folder / str(version)).mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(configuration(onnx_file, name), encoding="utf-8")
    shutil.copyfile(onnx_file, folder / str(version) / "model.onnx")
    return folder


def configuration(onnx_file: str | Path, name: str) -> str:
    """Return the text of config.pbtxt, from the actual inputs and outputs of the file."""
    session = onnxruntime.InferenceSession(str(onnx_file), providers=["CPUExecutionProvider"])
    lines = [f'name: "{name}"', 'backend: "onnxruntime"', "max_batch_size: 0"]
    for kind, tensors in (("input", session.get_inputs()), ("output", session.get_outputs())):
        for tensor in tensors:
            dims = ", ".join(str(size) if isinstance(size, int) else "-1" for size in tensor.shape)
            escaped = tensor.name.replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'{kind} [{{ name: "{escaped}", data_type: {TYPES[tensor.type]}, dims: [ {dims} ] }}]')
    lines.append("instance_group [{ kind: KIND_CPU, count: 1 }]")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(add_model(*sys.argv[1:4]))
