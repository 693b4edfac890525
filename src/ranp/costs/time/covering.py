"""What has to be measured so that a network can be timed at any widths: how far each falls, where kernels change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ranp.costs.step import Call, Settings, Sized, StepTrace
from ranp.costs.time.calls import Heavy, kernel_of, last_group, placed
from ranp.costs.time.grids import Box, Regime
from ranp.errors import UnsupportedError

_BLOCKED_KERNELS = frozenset(["Mkldnn", "MkldnnTranspose", "???"])
"""Those of oneDNN; torch gives no name to its transposed one."""


def boxes_of(traced: StepTrace, others: Sequence[StepTrace] | None) -> Iterator[tuple[Call, Box]]:
    """Every call with the widths that it may take: up to its own, or only its own where all step traces agree.

    Raises:
        UnsupportedError: The other step traces are of another network.
    """
    for other in others or ():
        if [call.op for call in other.calls] != [call.op for call in traced.calls]:
            raise UnsupportedError(
                "widths holds a step trace with other operators. Pass step traces of the same network, step and inputs,"
                " cut to other widths."
            )
    for number, call in enumerate(traced.calls):
        place = placed(call)
        if not isinstance(place, Heavy):
            yield call, ()
            continue
        sides = list(zip(place.least, place.widths, strict=True))
        if others is not None:
            seen = [place.widths, *(_widths(other.calls[number], len(sides)) for other in others)]
            sides = [
                (least if len(set(widths)) > 1 else most, max(widths))
                for (least, most), widths in zip(sides, zip(*seen, strict=True), strict=True)
            ]
        yield call, tuple(sides)
        single = last_group(call)
        alone = None if single is None or sides[0][0] > 1 else placed(single)
        if single is not None and isinstance(alone, Heavy):
            yield single, tuple((width, width) for width in alone.widths)


def _widths(call: Call, axes: int) -> tuple[int, ...]:
    """The widths of a heavy call, with the number of groups if it has one group while others have several."""
    place = placed(call)
    widths = place.widths if isinstance(place, Heavy) else ()
    return (*(1,) * (axes - len(widths)), *widths)


def regimes_of(call: Call, place: Heavy, box: Box, block: int) -> tuple[Regime, ...]:
    """Where along the first axis torch changes from one kernel to another.

    Args:
        call: The heavy call.
        place: Where it stands.
        box: The widths to be covered.
        block: Channels that a vectorised kernel computes at once on this machine.
    """
    found: list[Regime] = []
    for width in range(1, box[0][1] + 1):
        kernel = kernel_of(call, (width, *place.widths[1:]))
        if not found or found[-1].kernel != kernel:
            found.append(Regime(width, kernel, block if kernel in _BLOCKED_KERNELS else 1))
        if not kernel:
            break
    return tuple(found)


def copy_of(call: Call, amount: int) -> Call:
    """A plain copy that moves as much data as a call."""
    flat = Sized((max(1, amount // 2),), next(iter((*call.inputs, *call.outputs))).dtype)
    return Call("aten.clone.default", (flat,), (flat,), Settings(("T",)), call.phase, call.module)
