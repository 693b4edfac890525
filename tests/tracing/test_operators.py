"""Rules of operators: all that ``torch.nn`` runs have one, and what they say holds when the inputs are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import ranp
from ranp.running.calling import tensors_in
from ranp.running.copies import copy_model
from ranp.running.dataless import execute, to_meta
from ranp.running.randomness import untouched_rng
from ranp.running.recording import ModuleStack
from ranp.tracing import rules
from ranp.tracing.cuts import keeps_of
from ranp.tracing.cutting import cut_copy, cut_tensor
from ranp.tracing.labels import LabelSpace
from ranp.tracing.ledger import Ledger
from ranp.tracing.operation import labels_of
from ranp.tracing.rules.refusals import REASONS
from ranp.tracing.running import LabelMode, give_birth
from tests.support.operator_cases import WITHOUT_A_CALL, Case, all_cases
from tests.support.oracles import random_plan, slim_error
from tests.support.topologies.patterns import between
from tests.support.topologies.rules import low_frequencies
from tests.support.topologies.topology import tensor, volume

CASES = all_cases()
every_case = pytest.mark.parametrize("case", CASES, ids=[f"{n}-{case.name}" for n, case in enumerate(CASES)])
in_both_modes = pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])

pytestmark = pytest.mark.filterwarnings("ignore")

WITHOUT_DATA = (
    "TransformerEncoder", "GaussianNLLLoss", "CTCLoss", "a mask", "a mask of everything", "take along",
    "masked select", "rounded",
)  # fmt: skip
"""They look at values, or run operators that torch cannot run without."""
MIXING = frozenset(
    "Softmin Softmax LogSoftmax Softmax2d GroupNorm LayerNorm RMSNorm LocalResponseNorm CosineSimilarity normalize "
    "gumbel_softmax attention InstanceNorm1d InstanceNorm2d InstanceNorm3d PairwiseDistance CrossEntropyLoss "
    "MultiLabelSoftMarginLoss cdist TripletMarginLoss TripletMarginWithDistanceLoss CosineEmbeddingLoss "
    "weight_norm spectral_norm KLDivLoss".split()
) | {"statistics of the batch"}
"""What channels give depends on which others there are, so that after a cut only shapes can be compared."""
ASSUMING = frozenset(
    "Unflatten RNN GRU LSTM RNNCell GRUCell LSTMCell TransformerEncoderLayer TransformerDecoderLayer "
    "TransformerDecoder Transformer MultiheadAttention affine_grid".split()
)
"""Their own code knows a size, which a trial cut finds out."""
RANDOM = frozenset("Dropout AlphaDropout FeatureAlphaDropout RReLU gumbel_softmax".split())


class Watch(TorchDispatchMode):
    """Lists the operators that run."""

    def __init__(self, run: Any) -> None:
        super().__init__()
        self.run, self.seen = run, set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func)
        return self.run(func, args, kwargs or {})


def directly(func: Any, args: Any, kwargs: Any) -> Any:
    """Runs an operator as it is."""
    return func(*args, **kwargs)


def known(func: Any) -> bool:
    """True if an operator has a rule (a refusal is one) or carries nothing."""
    return rules.find(func) is not None or func._schema.name.split("::")[-1] in rules.IGNORED


@every_case
@in_both_modes
@pytest.mark.parametrize("meta", [False, True], ids=["data", "meta"])
def test_every_operator_has_a_rule(case: Case, train: bool, meta: bool) -> None:
    call, inputs, keywords = case.call, case.inputs, case.keywords
    if isinstance(call, nn.Module):
        call = copy_model(call, meta=meta).train(train)
    if meta:
        inputs, keywords = to_meta(inputs), to_meta(keywords)
    with untouched_rng(), torch.no_grad(), Watch(execute if meta else directly) as watch:
        try:
            call(*inputs, **keywords)
        except (NotImplementedError, RuntimeError):
            assert meta or (case.name, train) == ("SyncBatchNorm", True)
            assert not meta or case.name in WITHOUT_DATA
    missing = sorted(str(func) for func in watch.seen if not known(func))
    assert not missing


def test_every_module_of_torch_is_called() -> None:
    called = {case.name for case in CASES}
    modules = {name for name in dir(nn) if isinstance(getattr(nn, name), type)}
    modules = {name for name in modules if issubclass(getattr(nn, name), nn.Module) and not name.startswith("Lazy")}
    assert modules - called == WITHOUT_A_CALL


def test_refusals_name_operators_that_exist_and_say_why() -> None:
    for name, reason in REASONS.items():
        assert hasattr(torch.ops.aten, name) or hasattr(torch.ops.aten, f"{name}_"), name
        assert len(reason.split()) > 3


class Called(nn.Module):
    """A call as a network without inputs: what goes in are buffers, so that it has labels and can be cut."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.inner = case.call if isinstance(case.call, nn.Module) else None
        self.names = {i: f"input{i}" for i, value in enumerate(case.inputs) if isinstance(value, Tensor)}
        for i, name in self.names.items():
            self.register_buffer(name, case.inputs[i].clone())

    def forward(self) -> Any:
        """Make the call."""
        given = [getattr(self, self.names[i]) if i in self.names else v for i, v in enumerate(self.case.inputs)]
        return (self.inner or self.case.call)(*given, **self.case.keywords)


def labelled(model: nn.Module) -> tuple[LabelSpace, Any, list[Tensor]]:
    """Runs a copy with labels on all it holds; returns what was noted, where labels were born, and the outputs."""
    copy, space = copy_model(model, meta=False).double(), LabelSpace()
    births = give_birth(copy, space)
    mode = LabelMode(space, Ledger(), births, ModuleStack(nn.Module()), (), run=directly)
    with untouched_rng(), torch.no_grad(), mode:
        outputs = tensors_in(copy())
    return space, births, outputs


@every_case
@pytest.mark.parametrize("seed", range(3))
def test_a_cut_of_the_inputs_is_a_cut_of_the_outputs(case: Case, seed: int) -> None:
    """Channels that go from the inputs go from the outputs, and those that stay have the values they had."""
    model = Called(case).eval()
    space, births, outputs = labelled(model)
    classes = space.resolve()
    ids, counted = classes.ids, [number for pieces in classes.pieces for piece in pieces for number in piece]
    shown = np.concatenate([np.zeros(1, int), *(ids[v] for out in outputs for v in labels_of(out).values())])
    loose = np.setdiff1d(shown, [0, *counted])
    gone = set(loose[np.random.default_rng(seed).random(len(loose)) < 0.4].tolist())
    for labels in births.values():  # something of every tensor stays
        if gone.issuperset(ids[labels].tolist()):
            gone.discard(int(ids[labels][0]))
    if not gone or case.name in ASSUMING:
        pytest.skip("nothing to cut" if not gone else "its code knows a size")
    keep = ~np.isin(ids, sorted(gone))
    slim = cut_copy(model, keeps_of(births, keep), meta=False).double().eval()
    with untouched_rng(), torch.no_grad():
        found = tensors_in(slim())
    for full, small in zip(outputs, found, strict=True):
        expected = cut_tensor(full, {dim: np.flatnonzero(keep[labels]) for dim, labels in labels_of(full).items()})
        assert small.shape == expected.shape
        if case.name not in MIXING | RANDOM and (small.is_floating_point() or small.is_complex()):
            torch.testing.assert_close(small, expected)


def test_complex_weights_have_labels_and_are_cut() -> None:
    weight = nn.Parameter(torch.complex(tensor(8, 8, 2, 2, 2), tensor(8, 8, 2, 2, 2, seed=1)) / 4)
    model, inputs = between(lambda m, x: low_frequencies(x, m.w), w=weight), volume()()
    trace = ranp.trace(model, inputs)
    plan = random_plan(trace, np.random.default_rng(0), 0.4, scope="layer")
    assert not trace.unknown
    assert {"stem", "w"} <= {layer.name for layer in trace.layers if len(plan.kept[layer.name]) < layer.channels}
    slim = ranp.slim(model, plan)
    assert slim.w.is_complex()
    assert slim.w.numel() < model.w.numel()
    assert slim_error(model, plan, inputs, consumers={"w": 0}) < 1e-9
