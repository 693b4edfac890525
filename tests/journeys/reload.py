"""Another process: load the slim network, export it, run it without Python's help, and say how far it is off."""

from __future__ import annotations

import sys

import monai_project
import onnxruntime
import torch
from safetensors.torch import save_file

import ranp
from ranp.integrations.exporting import export

slim = ranp.load("slim.safetensors", monai_project.model).eval()
example = torch.randn(1, 2, 32, 32, 32, generator=torch.Generator().manual_seed(0))
made = export(slim, example, "slim.onnx", format="onnx")
session = onnxruntime.InferenceSession("slim.onnx")
(found,) = session.run(None, {session.get_inputs()[0].name: example.numpy()})
with torch.no_grad():
    expected = slim(example)
save_file({"output": expected.contiguous()}, sys.argv[1])
print(f"off by {(torch.from_numpy(found) - expected).abs().max() / expected.abs().max():.1e}")  # noqa: T201
