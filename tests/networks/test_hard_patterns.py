"""Hard patterns by name: each has topologies, is pruned right or kept, and what is kept is reported with its cause."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ranp
from ranp.reporting.causes import what_stays
from tests.support.oracles import forward_backward, random_plan, random_scores, slim_error, tensors
from tests.support.topologies import TOPOLOGIES
from tests.support.topologies.code import Late
from tests.support.topologies.patterns import between
from tests.support.topologies.topology import Net, conv, tensor

TOLERANCE = 1e-9

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")

PATTERNS: dict[str, str] = {
    "channel shuffle": "channel_shuffle channel_shuffle_operator shuffle_unit shuffle_of_a_norm_in_other_groups "
    "shuffle_twice_in_different_groups shuffle_across_groups shuffle_between_other_groups "
    "shuffle_units_in_a_row",
    "pixel shuffle": "pixel_shuffle voxel_shuffle voxel_unshuffle space_to_depth subpixel_upsampling_with_icnr "
    "voxel_shuffle_with_factors_first voxel_shuffle_into_a_written_width",
    "grouped transposed conv": "grouped_transposed depthwise_transposed grouped_transposed_with_output_size "
    "grouped_transposed_then_norm_in_other_groups",
    "GroupNorm with any divisibility": "group_norm_fewer_groups group_norm_one_group_or_all group_norm_without_affine "
    "group_norm_before_grouped_conv group_norm_of_a_prime_width group_norm_of_odd_groups "
    "group_norm_of_thirty_two_groups group_norms_that_share_no_divisor group_norm_across_the_seam_of_a_concatenation "
    "group_norm_by_function_with_written_groups group_norm_in_a_residual_branch group_norm_of_small_groups_in_a_stream "
    "group_norms_of_one_count_over_a_concatenation group_norm_of_small_groups_without_affine",
    "split / chunk then cat": "chunk_gate chunk_concatenated_in_another_order split_by_size_and_added slice_half "
    "split_in_unequal_sizes split_in_written_sizes chunk_worked_on_and_concatenated chunk_in_a_hierarchy "
    "chunk_that_leaves_a_smaller_rest shares_in_a_loop_by_width",
    "cat of adds": "concatenation_of_additions addition_of_concatenations addition_of_crossed_concatenations",
    "zero-padded shortcut": "residual_padded residual_concatenated_with_zeros residual_padded_on_both_sides "
    "zero_padded_with_a_written_width zero_padded_by_partial_functions",
    "repeated channels": "channels_repeated channels_expanded channels_tiled_and_added both_signs "
    "mean_expanded_to_a_written_width channels_repeated_by_their_own_counts",
    "weight shared by two layers": "weight_shared_by_two_layers tied_autoencoder",
    "a module called on two inputs": "siamese siamese_along_the_batch called_twice_on_the_same_input "
    "called_twice_in_a_row called_on_inputs_of_two_sizes one_block_many_times",
    "weight norm": "parametrized_weights weight_norm_by_hook weight_norm_of_a_transposed_layer "
    "weight_norm_along_a_kernel",
    "spectral norm": "parametrized_weights spectral_norm_by_hook",
    "parametrizations": "parametrization_low_rank parametrization_standardised parametrization_symmetric "
    "weight_standardised",
    "functional weights": "functional_weights kernels_mixed_by_a_route weight_in_another_order "
    "weights_in_lists_and_dicts hypernetwork_with_written_sizes called_with_other_weights matmul_weight",
    "einsum": "einsum_weight einsum_with_a_codebook gate_of_channels_by_channels",
    "gating": "squeeze_and_excitation squeeze_and_excitation_linear attention_gate selective_kernel spatial_attention "
    "efficient_channel_attention gate_by_hard_sigmoid gate_with_a_written_width gates_of_channels_then_space "
    "covariance_gate gated_linear_unit",
    "unfolded neighbours": "patches_to_columns neighbours_weighed_by_features involution",
    "outputs as tuple": "output_tuple output_named_tuple",
    "outputs as dict": "output_nested_dict output_ordered_dict_with_attributes",
    "outputs as dataclass": "output_dataclass output_slotted_dataclass",
    "outputs as list with None": "output_list_with_none",
    "sizes baked into Python constants": "written_size_in_view written_size_in_factory slice_with_written_bounds "
    "maxout_with_a_written_width pairs_in_a_written_loop hypernetwork_with_written_sizes first_channels_gathered "
    "channels_scaled_by_their_number channels_with_sinusoidal_positions divided_by_the_width",
    "data-dependent branches": "branch_by_data halved_until_small early_exit routed_to_one_expert",
    "checkpointed blocks": "checkpointed checkpointed_sequences_in_autocast",
    "lazily built modules": "built_on_an_earlier_call lazy_layers_after_a_call",
    "tied embeddings": "tied_embedding embedded_condition",
    "frozen layers": "frozen_layers",
    "complex control flow": "drop_path hook_that_changes_the_output picked_by_name_and_index one_block_many_times "
    "state_from_call_to_call function_with_its_own_gradient buffer_replaced_in_training "
    "softmax_in_eval_and_help_in_training early_exit",
}
"""Each pattern that people's networks are made of, and the topologies that stand for it."""

CAUSES: dict[str, tuple[str, str, str]] = {
    # topology: (layer that is kept, operator to blame, words of the reason)
    "written_size_in_view": ("stem", "mean", "code"),
    "written_size_in_factory": ("stem", "add", "code"),
    "gate_with_a_written_width": ("stem", "view", "code"),
    "maxout_with_a_written_width": ("stem", "", ""),
    "mean_expanded_to_a_written_width": ("stem", "", "code"),
    "group_norm_by_function_with_written_groups": ("stem", "native_group_norm", "code"),
    "zero_padded_with_a_written_width": ("wide", "add", "code"),
    "channels_scaled_by_their_number": ("stem", "mul", "fixed size"),
    "divided_by_the_width": ("stem", "div", "number"),
    "channels_in_a_stored_order": ("stem", "index", "taken by an index"),
    "channels_sorted": ("stem", "sort", "order"),
    "channels_top": ("stem", "topk", "order"),
    "channels_cumulated": ("stem", "cumsum", "order"),
    "channels_argmax": ("stem", "argmax", "number"),
    "one_hot_of_the_largest": ("stem", "argmax", "number"),
    "channels_rolled": ("a", "roll", "rotated"),
    "channels_added_by_an_index": ("stem", "index_add", "addressed by data"),
    "fourier_over_channels": ("stem", "fft", ""),
    "local_response_norm": ("a", "avg_pool", "along channels"),
    "efficient_channel_attention": ("stem", "convolution", "along channels"),
    "unknown_operator": ("stem", "ranp_topologies.mix", "no rule"),
    "hypernetwork_with_written_sizes": ("gen", "", ""),
    "residual_on_the_input": ("outer", "add", "fixed size"),
    "through_numpy": ("stem", "", "never read"),
    "unused_layer": ("unused", "", "did not run"),
    "branch_by_data": ("no", "", "did not run"),
    "one_channel_waist": ("b", "", "a single channel"),
    "group_norms_that_share_no_divisor": ("stem", "", "stand or fall together"),
    "output_tuple": ("head_a", "", "output"),
}
"""Where channels must stay: what the report has to say about them."""


def loss(output: Any, _: Any) -> Tensor:
    """Some scalar of whatever a network returns."""
    return sum((value.float().square().mean() for value in tensors(output)), torch.zeros(()))


@functools.cache
def built(name: str) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    return TOPOLOGIES[name].build(), TOPOLOGIES[name].inputs()


def pruned(name: str, **options: Any) -> ranp.Pruned:
    model, inputs = built(name)
    options = {"sparsity": 0.4, "method": "layerwise", "criterion": "magnitude", **options}
    return ranp.prune(model, [(inputs, None)], loss, **options)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_has_topologies(pattern: str) -> None:
    names = PATTERNS[pattern].split()
    assert names
    assert not set(names) - set(TOPOLOGIES)


@pytest.mark.parametrize("name", CAUSES)
def test_the_report_names_layer_operator_and_reason(name: str) -> None:
    layer, op, words = CAUSES[name]
    result = pruned(name)
    held = [pin for pin in result.report.pins if layer in pin.layers]
    assert held, f"nothing is said about {layer}"
    assert any(op in str(pin) and words in str(pin) for pin in held), [str(pin) for pin in held]
    note = next(row.note for row in result.report.layers if row.name == layer)
    assert note
    assert note in {str(pin) for pin in held}
    assert str(held[0]) in str(result.report)


class Unheard(nn.Module):
    """A module that runs an operator nobody has a rule for."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.ranp_hard_patterns.unheard(x)


@torch.library.custom_op("ranp_hard_patterns::unheard", mutates_args=())
def unheard(x: Tensor) -> Tensor:
    return x.roll(1, 1) * 2.0


@unheard.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


unheard.register_autograd(lambda _, gradient: 2.0 * gradient.roll(-1, 1))


def strange() -> nn.Module:
    """A strange operator deep inside, ordinary layers before and after it."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.before(F.relu(m.first(x))))
        x = F.relu(m.inside.layer(m.inside.strange(F.relu(m.fed(x)))))
        return m.head(F.relu(m.after(x)) + m.side(x))

    inside = nn.ModuleDict({"strange": Unheard(), "layer": conv(8, 6)})
    layers = {"first": conv(2, 6), "before": conv(6, 6), "fed": conv(6, 8), "after": conv(6, 8), "side": conv(6, 8)}
    return Net(body, inside=inside, head=conv(8, 2), **layers)


@pytest.mark.parametrize("sparsity", [0.2, 0.5, 0.8])
def test_an_operator_never_seen_stops_only_what_it_touches(sparsity: float) -> None:
    torch.manual_seed(0)
    model, inputs = strange(), tensor(2, 2, 4, 4, 4)
    trace = ranp.trace(model, inputs)
    free = {layer.name for layer in trace.layers if layer.classes.all()}
    assert free == {"first", "before", "inside.layer", "after", "side"}
    (pin,) = (pin for pin in what_stays(trace) if pin.cause == "operator")
    assert dict(pin.layers) == {"fed": 8}
    assert "unheard" in str(pin)
    assert "inside.strange" in str(pin)
    result = ranp.prune(model, [(inputs, None)], loss, sparsity=sparsity, exact=True)
    assert result.verification.ok
    assert slim_error(model, result.plan, inputs) < TOLERANCE
    for piece in (str(pin), "unheard.default in inside.strange"):
        assert piece in str(result.report)
    assert result.report.to_dict()["unknown_operators"] == list(trace.unknown)


METHODS = ("ranp-f", "ranp-m", "weighted", "vanilla", "layerwise", "random", "snip")
SAMPLE = (
    "channel_shuffle voxel_shuffle_with_factors_first grouped_transposed group_norm_of_odd_groups "
    "addition_of_concatenations residual_padded weight_shared_by_two_layers gates_of_channels_then_space "
    "functional_weights frozen_layers siamese"
).split()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_prunes_a_sample_right(method: str) -> None:
    for index, name in enumerate(SAMPLE):
        options: dict[str, Any] = {"exact": bool(index % 2), "tie": ("max", "union")[index % 2], "criterion": None}
        options |= {"round_to": (1, 4, 2)[index % 3], "sparsity": 0.3 if method != "snip" else 0.6}
        try:
            result = pruned(name, method=method, **options)
        except ranp.errors.InfeasibleError:
            continue
        topology = TOPOLOGIES[name]
        assert result.verification.ok
        if topology.masked:
            model, inputs = built(name)
            extras = {"consumers": topology.consumers, "statistics": topology.statistics, "silenced": topology.silenced}
            assert slim_error(model, result.plan, inputs, **extras) < TOLERANCE, name


OPTIONS: tuple[dict[str, Any], ...] = ({"exact": True}, {"tie": "union"}, {"round_to": 4}, {"min_channels": 3})


@pytest.mark.parametrize("pattern", PATTERNS)
def test_options_of_selection_keep_every_pattern_right(pattern: str) -> None:
    """One plan with each option, from random scores, judged by an oracle that knows no rules."""
    rng = np.random.default_rng(3)
    for index, name in enumerate(PATTERNS[pattern].split()):
        topology, (model, inputs) = TOPOLOGIES[name], built(name)
        trace = ranp.trace(model, inputs)
        scores = random_scores(trace, rng)
        try:
            plan = ranp.select(scores, trace, sparsity=rng.uniform(0.2, 0.6), **OPTIONS[index % len(OPTIONS)])
        except ranp.errors.InfeasibleError:
            plan = random_plan(trace, rng, 0.4)
        assert ranp.verify(model, plan, inputs).ok, name
        if topology.masked:
            extras = {"consumers": topology.consumers, "statistics": topology.statistics, "silenced": topology.silenced}
            error = slim_error(model, plan, inputs, training=not topology.stochastic, **extras)
            assert error < TOLERANCE, name


def depth_at_random(skip: Callable[[], bool]) -> Net:
    """Residual blocks, some of which are left out in training."""

    def body(m: Net, x: Tensor) -> Tensor:
        for block in (m.p, m.q, m.r):
            if not (m.training and skip()):
                x = x + F.relu(block(x))
        return x

    return between(body, p=conv(8, 8), q=conv(8, 8), r=conv(8, 8))


@pytest.mark.parametrize("by", ["python", "numpy", "torch"])
def test_blocks_left_out_at_random(by: str) -> None:
    skips: dict[str, Callable[[], bool]] = {
        "python": lambda: random.random() < 0.5,
        "numpy": lambda: bool(np.random.rand() < 0.5),  # noqa: NPY002 -- as people write it
        "torch": lambda: float(torch.rand(1)) < 0.5,
    }
    model, inputs = depth_at_random(skips[by]), tensor(2, 2, 4, 4, 4)
    random.seed(1)
    states = random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    trace = ranp.trace(model, inputs)
    assert all(trace.layer(name).classes.all() for name in ("a", "stem", "b", "p", "q", "r"))
    rng = np.random.default_rng(0)
    for sparsity in (0.3, 0.6):
        plan = random_plan(trace, rng, sparsity)
        assert ranp.verify(model, plan, inputs).ok
        assert slim_error(model, plan, inputs, training=False) < TOLERANCE
    assert random.getstate() == states[0]
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
    forward_backward(ranp.slim(model, plan), inputs)


def test_layers_in_random_order() -> None:
    """Every order may come, so every layer must fit behind every other one."""

    def body(m: Net, x: Tensor) -> Tensor:
        order = [m.p, m.q, m.r]
        if m.training:
            random.shuffle(order)
        for layer in order:
            x = F.relu(layer(x))
        return x

    model, inputs = between(body, p=conv(8, 8), q=conv(8, 8), r=conv(8, 8)), tensor(2, 2, 4, 4, 4)
    random.seed(0)
    plan = random_plan(ranp.trace(model, inputs), np.random.default_rng(0), 0.4)
    slim = ranp.slim(model, plan)
    for seed in range(12):
        random.seed(seed)
        forward_backward(slim, inputs)


class LeavesFeatures(nn.Module):
    """Keeps features of the last call where ``copy.deepcopy`` cannot copy them: they hang on a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv3d(2, 6, 1), nn.Conv3d(6, 2, 1)
        self.features: list[Tensor] = []
        self.named: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.features = [F.relu(self.a(x))]
        self.named = {"last": self.features[0]}
        return self.b(self.named["last"])


def test_features_that_an_earlier_call_left_behind() -> None:
    model, inputs = LeavesFeatures(), tensor(2, 2, 3, 3, 3)
    model(inputs)
    result = ranp.prune(model, [(inputs, None)], loss, sparsity=0.4)
    assert result.plan.widths["a"] < 6
    assert result.model(inputs).shape == (2, 2, 3, 3, 3)


def test_a_lazy_layer_asks_for_one_call_first() -> None:
    model = nn.Sequential(nn.LazyConv3d(6, 1), nn.ReLU(), nn.Conv3d(6, 2, 1))
    with pytest.raises(ranp.errors.UnsupportedError, match="Run the model once"):
        ranp.trace(model, tensor(2, 2, 3, 3, 3))
    model(tensor(2, 2, 3, 3, 3))
    assert ranp.trace(model, tensor(2, 2, 3, 3, 3)).prunable == 6


def test_what_is_built_in_the_first_call_is_left_alone() -> None:
    torch.manual_seed(0)
    model, inputs = between(lambda m, x: m.late(x), late=Late()), tensor(2, 2, 4, 4, 4)
    result = ranp.prune(model, [(inputs, None)], loss, sparsity=0.4, criterion="magnitude", method="layerwise")
    assert result.plan.widths["a"] < 6
    assert result.plan.widths["b"] < 6
    assert model.late.layer is None
    assert result.model(inputs).shape == (2, 2, 4, 4, 4)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_what_torch_script_compiled_is_left_alone() -> None:
    torch.manual_seed(0)
    compiled = torch.jit.script(nn.Sequential(conv(8, 8), nn.ReLU()))
    model, inputs = between(lambda m, x: m.inner(x), inner=compiled), tensor(2, 2, 4, 4, 4)
    result = ranp.prune(model, [(inputs, None)], loss, sparsity=0.4, criterion="magnitude", method="layerwise")
    assert result.verification.ok
    assert result.plan.widths["a"] < 6
    assert result.plan.widths["b"] < 6
    assert result.plan.widths["stem"] == 8
    result.model(inputs).sum().backward()


@pytest.mark.parametrize("name", ["early_exit", "branch_by_data"])
def test_a_branch_not_taken_is_not_cut(name: str) -> None:
    """A head that may make the output another time stays whole, and what did not run is said to be at risk."""
    model, inputs = built(name)
    trace = ranp.trace(model, inputs)
    for layer in TOPOLOGIES[name].kept:
        assert trace.layer(layer).pinned, f"{layer} may lose channels"
