"""Operators that are known and cannot be followed: everything they touch stays, with a reason that says why.

An operator without a rule does the same, but is reported as one that nobody thought of.
"""

from __future__ import annotations

from ranp.tracing.operation import Op
from ranp.tracing.rules.table import rule

MATRICES = (
    "_cholesky_solve_helper _compute_linear_combination _linalg_det _linalg_eigh _linalg_eigvals _linalg_slogdet "
    "_linalg_solve_ex _linalg_svd cholesky cholesky_inverse cholesky_solve geqrf linalg_cholesky_ex linalg_cross "
    "linalg_eig linalg_householder_product linalg_inv_ex linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu "
    "linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp linalg_pinv linalg_qr linalg_solve_triangular lu_unpack "
    "ormqr trace triangular_solve block_diag"
).split()
RECURRENT = (
    "mkldnn_rnn_layer _cudnn_rnn miopen_rnn _lstm_mps _thnn_fused_lstm_cell _thnn_fused_gru_cell _pack_padded_sequence "
    "lstm gru rnn_tanh rnn_relu"
).split()
FUSED = (
    "_native_multi_head_attention _transformer_encoder_layer_fwd _transform_bias_rescale_qkv _masked_softmax "
    "_triton_multi_head_attention _triton_scaled_dot_attention _flash_attention_forward _efficient_attention_forward"
).split()
NESTED = (
    "_nested_tensor_from_mask _nested_tensor_from_mask_left_aligned _nested_from_padded to_padded_tensor "
    "_nested_view_from_buffer _nested_tensor_from_tensor_list _jagged_to_padded_dense_forward "
    "_padded_dense_to_jagged_forward"
).split()
BY_DATA = "take put masked_scatter searchsorted _unsafe_masked_index _unsafe_masked_index_put_accumulate".split()

REASONS: dict[str, str] = {
    **dict.fromkeys(MATRICES, "a matrix is taken apart or solved, to which all of its channels belong"),
    **dict.fromkeys(RECURRENT, "a recurrent layer in one operator"),
    **dict.fromkeys(FUSED, "a whole layer in one operator"),
    **dict.fromkeys(NESTED, "samples of different sizes in one tensor"),
    **dict.fromkeys(BY_DATA, "data decides which elements are read or written"),
    "renorm": "channels are scaled to a norm that all of them make up",
    "embedding_renorm": "rows of a table are scaled to a norm that all of its columns make up",
    "_fused_moving_avg_obs_fq_helper": "extremes over all channels decide how each is rounded",
    "batch_norm_stats": "statistics that several processes share",
    "batch_norm_gather_stats": "statistics that several processes share",
    "batch_norm_gather_stats_with_counts": "statistics that several processes share",
    "batch_norm_update_stats": "statistics that several processes share",
    "_sample_dirichlet": "channels are drawn so that they sum to one",
    "resize_as": "memory is laid out anew",
    "resize": "memory is laid out anew",
    "set": "memory is laid out anew",
    "conv_tbc": "a convolution whose channels come last",
}
"""Operator -> why nothing that it touches may go."""


@rule(*REASONS)
def refuse(op: Op) -> None:
    """Keeps all channels that go in; what comes out has none."""
    for tensor in op.tensors:
        op.pin_tensor(tensor, REASONS[op.name if op.name in REASONS else op.name.rstrip("_")])
    op.emit({})
