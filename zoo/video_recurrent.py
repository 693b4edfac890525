"""Recurrent video networks: the same weights run once per frame."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry


class ConvLSTMCell(nn.Module):
    """One step of a convolutional LSTM; a single convolution makes all four gates."""

    def __init__(self, input_dim: int, hidden_dim: int, kernel_size: tuple[int, int], bias: bool = True) -> None:
        super().__init__()
        self.input_dim = input_dim
        self.hidden_dim = hidden_dim
        padding = kernel_size[0] // 2, kernel_size[1] // 2
        self.conv = nn.Conv2d(input_dim + hidden_dim, 4 * hidden_dim, kernel_size, padding=padding, bias=bias)

    def forward(self, input_tensor: Tensor, cur_state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h_cur, c_cur = cur_state
        combined = torch.cat([input_tensor, h_cur], dim=1)
        combined_conv = self.conv(combined)
        cc_i, cc_f, cc_o, cc_g = torch.split(combined_conv, self.hidden_dim, dim=1)
        i = torch.sigmoid(cc_i)
        f = torch.sigmoid(cc_f)
        o = torch.sigmoid(cc_o)
        g = torch.tanh(cc_g)
        c_next = f * c_cur + i * g
        h_next = o * torch.tanh(c_next)
        return h_next, c_next

    def init_hidden(self, batch_size: int, image_size: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """The state before the first frame."""
        height, width = image_size
        weight = self.conv.weight
        return (
            torch.zeros(batch_size, self.hidden_dim, height, width, device=weight.device, dtype=weight.dtype),
            torch.zeros(batch_size, self.hidden_dim, height, width, device=weight.device, dtype=weight.dtype),
        )


class EncoderDecoderConvLSTM(nn.Module):
    """Predicts frames: two cells read the clip, two write the future, a 3D convolution makes the frames."""

    def __init__(self, nf: int = 64, in_chan: int = 1, future_seq: int = 10) -> None:
        super().__init__()
        self.future_seq = future_seq
        self.encoder_1_convlstm = ConvLSTMCell(in_chan, nf, (3, 3))
        self.encoder_2_convlstm = ConvLSTMCell(nf, nf, (3, 3))
        self.decoder_1_convlstm = ConvLSTMCell(nf, nf, (3, 3))
        self.decoder_2_convlstm = ConvLSTMCell(nf, nf, (3, 3))
        self.decoder_cnn = nn.Conv3d(nf, in_chan, kernel_size=(1, 3, 3), padding=(0, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        b, seq_len, _, h, w = x.size()
        h_t, c_t = self.encoder_1_convlstm.init_hidden(b, (h, w))
        h_t2, c_t2 = self.encoder_2_convlstm.init_hidden(b, (h, w))
        h_t3, c_t3 = self.decoder_1_convlstm.init_hidden(b, (h, w))
        h_t4, c_t4 = self.decoder_2_convlstm.init_hidden(b, (h, w))

        outputs = []
        for t in range(seq_len):
            h_t, c_t = self.encoder_1_convlstm(x[:, t, :, :], (h_t, c_t))
            h_t2, c_t2 = self.encoder_2_convlstm(h_t, (h_t2, c_t2))
        encoder_vector = h_t2
        for _ in range(self.future_seq):
            h_t3, c_t3 = self.decoder_1_convlstm(encoder_vector, (h_t3, c_t3))
            h_t4, c_t4 = self.decoder_2_convlstm(h_t3, (h_t4, c_t4))
            encoder_vector = h_t4
            outputs += [h_t4]

        stacked = torch.stack(outputs, 1)
        stacked = stacked.permute(0, 2, 1, 3, 4)
        stacked = self.decoder_cnn(stacked)
        return torch.sigmoid(stacked)


class ConvGRUCell(nn.Module):
    """One step of a convolutional GRU with a convolution per gate."""

    def __init__(self, input_size: int, hidden_size: int, kernel_size: int) -> None:
        super().__init__()
        padding = kernel_size // 2
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.reset_gate = nn.Conv2d(input_size + hidden_size, hidden_size, kernel_size, padding=padding)
        self.update_gate = nn.Conv2d(input_size + hidden_size, hidden_size, kernel_size, padding=padding)
        self.out_gate = nn.Conv2d(input_size + hidden_size, hidden_size, kernel_size, padding=padding)
        for gate in (self.reset_gate, self.update_gate, self.out_gate):
            nn.init.orthogonal_(gate.weight)
            nn.init.constant_(gate.bias, 0.0)

    def forward(self, input_: Tensor, prev_state: Tensor | None) -> Tensor:
        batch_size = input_.data.size()[0]
        spatial_size = input_.data.size()[2:]
        if prev_state is None:
            state_size = [batch_size, self.hidden_size, *list(spatial_size)]
            prev_state = torch.zeros(state_size).to(input_)

        stacked_inputs = torch.cat([input_, prev_state], dim=1)
        update = torch.sigmoid(self.update_gate(stacked_inputs))
        reset = torch.sigmoid(self.reset_gate(stacked_inputs))
        out_inputs = torch.tanh(self.out_gate(torch.cat([input_, prev_state * reset], dim=1)))
        return prev_state * (1 - update) + out_inputs * update


class ConvGRU(nn.Module):
    """Layers of convolutional GRU cells."""

    def __init__(self, input_size: int, hidden_sizes: Sequence[int], kernel_sizes: Sequence[int]) -> None:
        super().__init__()
        self.n_layers = len(hidden_sizes)
        self.cells = []
        for i in range(self.n_layers):
            input_dim = input_size if i == 0 else hidden_sizes[i - 1]
            cell = ConvGRUCell(input_dim, hidden_sizes[i], kernel_sizes[i])
            name = "ConvGRUCell_" + str(i).zfill(2)
            setattr(self, name, cell)
            self.cells.append(getattr(self, name))

    def forward(self, x: Tensor, hidden: Sequence[Tensor | None] | None = None) -> list[Tensor]:
        if not hidden:
            hidden = [None] * self.n_layers
        input_ = x
        upd_hidden = []
        for layer_idx in range(self.n_layers):
            cell = self.cells[layer_idx]
            upd_cell_hidden = cell(input_, hidden[layer_idx])
            upd_hidden.append(upd_cell_hidden)
            input_ = upd_cell_hidden
        return upd_hidden


class ConvGRUClassifier(nn.Module):
    """A short 3D convolutional front end, ConvGRU layers frame by frame, and a classifier on the last state."""

    def __init__(self, num_classes: int = 101, width: int = 32, hidden_sizes: Sequence[int] = (64, 64, 32)) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv3d(3, width, kernel_size=(3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3), bias=False),
            nn.BatchNorm3d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool3d(kernel_size=(1, 2, 2)),
        )
        self.gru = ConvGRU(width, hidden_sizes, (5, 3, 3))
        self.fc = nn.Linear(hidden_sizes[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        hidden = None
        for t in range(x.size(2)):
            hidden = self.gru(x[:, :, t], hidden)
        out = F.adaptive_avg_pool2d(hidden[-1], 1)
        return self.fc(out.view(out.size(0), -1))


NETWORKS = (
    Entry(
        "ConvLSTM encoder-decoder",
        "video",
        lambda: EncoderDecoderConvLSTM(nf=16, future_seq=2),
        ((1, 3, 1, 8, 8),),
        ((1, 10, 1, 64, 64),),
    ),
    Entry(
        "ConvGRU classifier",
        "video",
        lambda: ConvGRUClassifier(5, 16, (16, 16, 8)),
        ((2, 3, 3, 16, 16),),
        ((1, 3, 16, 112, 112),),
    ),
)
