"""PredRNN (Wang 2017): spatiotemporal LSTM cells that hand a memory from layer to layer and frame to frame.

Special for pruning: convolutions make seven, four and three gates at once that `torch.split` cuts by `num_hidden`,
their layer norms run over channels and places, states begin as zeros of a width that a list of the network holds, and
one memory visits all cells, so their widths must agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.entry import Entry


class SpatioTemporalLSTMCell(nn.Module):
    """One step of one layer: its own cell state, the memory that comes by, and the output of both."""

    def __init__(self, in_channel: int, num_hidden: int, width: int, filter_size: int) -> None:
        super().__init__()
        self.num_hidden = num_hidden
        self._forget_bias = 1.0

        def gates(channels: int, count: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(channels, num_hidden * count, filter_size, padding=filter_size // 2),
                nn.LayerNorm([num_hidden * count, width, width]),
            )

        self.conv_x = gates(in_channel, 7)
        self.conv_h = gates(num_hidden, 4)
        self.conv_m = gates(num_hidden, 3)
        self.conv_o = gates(num_hidden * 2, 1)
        self.conv_last = nn.Conv2d(num_hidden * 2, num_hidden, kernel_size=1)

    def forward(self, x_t: Tensor, h_t: Tensor, c_t: Tensor, m_t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x_concat = self.conv_x(x_t)
        h_concat = self.conv_h(h_t)
        m_concat = self.conv_m(m_t)
        i_x, f_x, g_x, i_x_prime, f_x_prime, g_x_prime, o_x = torch.split(x_concat, self.num_hidden, dim=1)
        i_h, f_h, g_h, o_h = torch.split(h_concat, self.num_hidden, dim=1)
        i_m, f_m, g_m = torch.split(m_concat, self.num_hidden, dim=1)

        i_t = torch.sigmoid(i_x + i_h)
        f_t = torch.sigmoid(f_x + f_h + self._forget_bias)
        g_t = torch.tanh(g_x + g_h)
        c_new = f_t * c_t + i_t * g_t

        i_t_prime = torch.sigmoid(i_x_prime + i_m)
        f_t_prime = torch.sigmoid(f_x_prime + f_m + self._forget_bias)
        g_t_prime = torch.tanh(g_x_prime + g_m)
        m_new = f_t_prime * m_t + i_t_prime * g_t_prime

        mem = torch.cat((c_new, m_new), 1)
        o_t = torch.sigmoid(o_x + o_h + self.conv_o(mem))
        h_new = o_t * torch.tanh(self.conv_last(mem))
        return h_new, c_new, m_new


class PredRNN(nn.Module):
    """Reads frames in patches and predicts the next ones; a mask mixes true frames into what it predicted."""

    def __init__(
        self,
        num_hidden: Sequence[int] = (128, 128, 128, 128),
        width: int = 16,
        frame_channel: int = 16,
        filter_size: int = 5,
        input_length: int = 10,
        total_length: int = 20,
    ) -> None:
        super().__init__()
        self.num_layers = len(num_hidden)
        self.num_hidden = list(num_hidden)
        self.input_length = input_length
        self.total_length = total_length
        channels = (frame_channel, *num_hidden)
        self.cell_list = nn.ModuleList(
            SpatioTemporalLSTMCell(channels[i], num_hidden[i], width, filter_size) for i in range(self.num_layers)
        )
        self.conv_last = nn.Conv2d(num_hidden[-1], frame_channel, kernel_size=1, bias=False)

    def forward(self, frames: Tensor, mask_true: Tensor) -> Tensor:
        frames = frames.permute(0, 1, 4, 2, 3).contiguous()
        mask_true = mask_true.permute(0, 1, 4, 2, 3).contiguous()
        batch, height, width = frames.shape[0], frames.shape[3], frames.shape[4]

        next_frames, h_t, c_t = [], [], []
        x_gen = frames[:, 0]
        for i in range(self.num_layers):
            zeros = torch.zeros([batch, self.num_hidden[i], height, width]).to(frames)
            h_t.append(zeros)
            c_t.append(zeros)
        memory = torch.zeros([batch, self.num_hidden[0], height, width]).to(frames)

        for t in range(self.total_length - 1):
            if t < self.input_length:
                net = frames[:, t]
            else:
                mask = mask_true[:, t - self.input_length]
                net = mask * frames[:, t] + (1 - mask) * x_gen
            h_t[0], c_t[0], memory = self.cell_list[0](net, h_t[0], c_t[0], memory)
            for i in range(1, self.num_layers):
                h_t[i], c_t[i], memory = self.cell_list[i](h_t[i - 1], h_t[i], c_t[i], memory)
            x_gen = self.conv_last(h_t[self.num_layers - 1])
            next_frames.append(x_gen)
        return torch.stack(next_frames, dim=0).permute(1, 0, 3, 4, 2).contiguous()


NETWORKS = (
    Entry(
        "PredRNN",
        "video",
        lambda: PredRNN((20, 20, 20), 8, 4, 5, 2, 4),
        ((1, 4, 8, 8, 4), (1, 1, 8, 8, 4)),
    ),
)
