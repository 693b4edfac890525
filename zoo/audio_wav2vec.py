"""wav2vec 2.0 (Baevski 2020) as fine-tuned for speech recognition, after Hugging Face's code.

Special for pruning: a group norm of single channels, a grouped convolution with weight norm along its kernel as
position embedding, and heads cut by `head_dim` and put together by `embed_dim`, two numbers of every attention.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from zoo.entry import Entry


class ConvLayer(nn.Module):
    """A strided convolution with GELU; the first one has a norm."""

    def __init__(self, inp: int, oup: int, kernel: int, stride: int, normed: bool) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inp, oup, kernel, stride=stride, bias=False)
        self.activation = nn.GELU()
        self.layer_norm = nn.GroupNorm(num_groups=oup, num_channels=oup, affine=True) if normed else nn.Identity()

    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden_states = self.conv(hidden_states)
        hidden_states = self.layer_norm(hidden_states)
        return self.activation(hidden_states)


class PositionalConvEmbedding(nn.Module):
    """Positions by a wide grouped convolution over time."""

    def __init__(self, hidden_size: int, kernel: int, groups: int) -> None:
        super().__init__()
        conv = nn.Conv1d(hidden_size, hidden_size, kernel_size=kernel, padding=kernel // 2, groups=groups)
        self.conv = weight_norm(conv, name="weight", dim=2)
        self.num_pad_remove = 1 if kernel % 2 == 0 else 0
        self.activation = nn.GELU()

    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden_states = hidden_states.transpose(1, 2)
        hidden_states = self.conv(hidden_states)
        if self.num_pad_remove > 0:
            hidden_states = hidden_states[:, :, : -self.num_pad_remove]
        hidden_states = self.activation(hidden_states)
        return hidden_states.transpose(1, 2)


class Attention(nn.Module):
    """Four linear layers; heads become samples for the products."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.dropout = dropout
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def _shape(self, tensor: Tensor, seq_len: int, bsz: int) -> Tensor:
        return tensor.view(bsz, seq_len, self.num_heads, self.head_dim).transpose(1, 2).contiguous()

    def forward(self, hidden_states: Tensor) -> Tensor:
        bsz, tgt_len, _ = hidden_states.size()
        query_states = self.q_proj(hidden_states) * self.scaling
        key_states = self._shape(self.k_proj(hidden_states), -1, bsz)
        value_states = self._shape(self.v_proj(hidden_states), -1, bsz)
        proj_shape = (bsz * self.num_heads, -1, self.head_dim)
        query_states = self._shape(query_states, tgt_len, bsz).view(*proj_shape)
        key_states = key_states.reshape(*proj_shape)
        value_states = value_states.reshape(*proj_shape)

        src_len = key_states.size(1)
        attn_weights = torch.bmm(query_states, key_states.transpose(1, 2))
        if attn_weights.size() != (bsz * self.num_heads, tgt_len, src_len):
            raise ValueError(f"attention weights of size {attn_weights.size()}")
        attn_weights = nn.functional.softmax(attn_weights, dim=-1)
        attn_probs = nn.functional.dropout(attn_weights, p=self.dropout, training=self.training)
        attn_output = torch.bmm(attn_probs, value_states)
        if attn_output.size() != (bsz * self.num_heads, tgt_len, self.head_dim):
            raise ValueError(f"attention of size {attn_output.size()}")
        attn_output = attn_output.view(bsz, self.num_heads, tgt_len, self.head_dim)
        attn_output = attn_output.transpose(1, 2)
        attn_output = attn_output.reshape(bsz, tgt_len, self.embed_dim)
        return self.out_proj(attn_output)


class EncoderLayer(nn.Module):
    """Attention and perceptron, each followed by a norm."""

    def __init__(self, hidden_size: int, num_heads: int, intermediate_size: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(hidden_size, num_heads, dropout)
        self.dropout = nn.Dropout(dropout)
        self.layer_norm = nn.LayerNorm(hidden_size)
        self.intermediate_dense = nn.Linear(hidden_size, intermediate_size)
        self.intermediate_act_fn = nn.GELU()
        self.output_dense = nn.Linear(intermediate_size, hidden_size)
        self.final_layer_norm = nn.LayerNorm(hidden_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        attn_residual = hidden_states
        hidden_states = self.dropout(self.attention(hidden_states))
        hidden_states = self.layer_norm(attn_residual + hidden_states)
        feed_forward = self.dropout(self.intermediate_act_fn(self.intermediate_dense(hidden_states)))
        hidden_states = hidden_states + self.dropout(self.output_dense(feed_forward))
        return self.final_layer_norm(hidden_states)


class Wav2Vec2ForCTC(nn.Module):
    """Samples as features of 20 ms, a transformer over them, and a letter for each."""

    def __init__(
        self,
        conv_dim: Sequence[int] = (512,) * 7,
        conv_kernel: Sequence[int] = (10, 3, 3, 3, 3, 2, 2),
        conv_stride: Sequence[int] = (5, 2, 2, 2, 2, 2, 2),
        hidden_size: int = 768,
        num_layers: int = 12,
        num_heads: int = 12,
        intermediate_size: int = 3072,
        pos_conv: tuple[int, int] = (128, 16),
        vocab_size: int = 32,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        channels = (1, *conv_dim)
        self.feature_extractor = nn.ModuleList(
            ConvLayer(channels[i], conv_dim[i], conv_kernel[i], conv_stride[i], normed=i == 0)
            for i in range(len(conv_dim))
        )
        self.projection_norm = nn.LayerNorm(conv_dim[-1])
        self.projection = nn.Linear(conv_dim[-1], hidden_size)
        self.pos_conv_embed = PositionalConvEmbedding(hidden_size, *pos_conv)
        self.layer_norm = nn.LayerNorm(hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(hidden_size, num_heads, intermediate_size, dropout) for _ in range(num_layers)
        )
        self.lm_head = nn.Linear(hidden_size, vocab_size)

    def forward(self, input_values: Tensor) -> Tensor:
        hidden_states = input_values[:, None]
        for conv_layer in self.feature_extractor:
            hidden_states = conv_layer(hidden_states)
        extract_features = hidden_states.transpose(1, 2)
        hidden_states = self.dropout(self.projection(self.projection_norm(extract_features)))
        hidden_states = hidden_states + self.pos_conv_embed(hidden_states)
        hidden_states = self.dropout(self.layer_norm(hidden_states))
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        return self.lm_head(self.dropout(hidden_states))


NETWORKS = (
    Entry(
        "wav2vec 2.0",
        "audio",
        lambda: Wav2Vec2ForCTC(
            (16, 16, 16, 16),
            (10, 3, 3, 2),
            (5, 2, 2, 2),
            hidden_size=32,
            num_layers=3,
            num_heads=4,
            intermediate_size=64,
            pos_conv=(8, 4),
            vocab_size=8,
        ),
        ((2, 400),),
        ((1, 16000),),
    ),
)
