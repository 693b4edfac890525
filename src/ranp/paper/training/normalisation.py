"""Batch norm over all ranks: the statistics of the whole batch, as one process would take them.

PyTorch's own does that on GPUs only. With it, a network with batch norm trains on many ranks as on one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.modules.batchnorm import _BatchNorm

from ranp.paper.training.team import Team


class SharedBatchNorm(_BatchNorm):
    """A batch norm whose statistics, in training, are those of the samples of all ranks."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of dimensions will do."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalises over every dimension but the second, and over ranks."""
        if not self.training:
            return super().forward(input)
        dims = [0, *range(2, input.dim())]
        shape = [1, -1, *[1] * (input.dim() - 2)]
        count = _over_ranks(torch.tensor(float(input.numel() // input.shape[1]), device=input.device))
        wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        mean = _over_ranks(wide.sum(dims)) / count
        centred = wide - mean.view(shape)
        variance = _over_ranks(centred.square().sum(dims)) / count
        self._follow(mean.detach(), variance.detach(), count)
        result = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            result = result * self.weight.view(shape) + self.bias.view(shape)
        normalised: Tensor = result.to(input.dtype)
        return normalised

    def _follow(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Updates the running statistics as ``F.batch_norm`` does: with the unbiased variance."""
        if self.running_mean is None or self.running_var is None:
            return
        with torch.no_grad():
            if self.num_batches_tracked is not None:
                self.num_batches_tracked += 1
            momentum = 1 / float(self.num_batches_tracked or 1) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
            unbiased = variance * count / (count - 1).clamp(min=1)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)


def _over_ranks(values: Tensor) -> Tensor:
    """The sum over ranks; every rank's loss depends on every rank's values, so gradients are summed as well."""
    summed: Tensor = all_reduce(values)  # type: ignore[no-untyped-call]
    return summed


def share_statistics(model: nn.Module, team: Team) -> nn.Module:
    """Makes every batch norm of a network take its statistics over all ranks; names and tensors stay as they are."""
    if team.size == 1:
        return model
    if team.device.type == "cuda":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        return converted
    for name, module in list(model.named_modules()):
        if isinstance(module, _BatchNorm) and not isinstance(module, SharedBatchNorm) and name:
            parent, _, key = name.rpartition(".")
            setattr(model.get_submodule(parent), key, _shared(module))
    return model


def _shared(norm: _BatchNorm) -> SharedBatchNorm:
    shared = SharedBatchNorm(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    shared._parameters, shared._buffers = norm._parameters, norm._buffers
    shared.training = norm.training
    return shared
