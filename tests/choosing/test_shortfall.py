"""What is said where less was removed than was asked for."""

from __future__ import annotations

import ranp
from tests.support import networks_to_name as code


def pruned(**asked: object) -> ranp.Pruned:
    return ranp.prune(code.coupled(), code.batches(), code.loss, **asked)


def test_less_than_was_asked_for_is_explained_in_the_report() -> None:
    found, exact = pruned(sparsity=0.4), pruned(sparsity=0.4, exact=True).plan.sparsity
    why = found.report.settings["shortfall"]
    assert why.startswith(f"40.00% asked for, {found.plan.sparsity.of_channels:.2%} removed: coupled layers keep ")
    assert f"exact=True removes {exact.removed} of {exact.channels} channels" in why
    assert why in str(found.report)
    assert "shortfall" not in found.plan.settings


def test_nothing_is_said_where_what_was_asked_for_is_removed() -> None:
    for asked in ({"sparsity": 0}, {"sparsity": 0.4, "exact": True}, {"budget": "flops=60%"}):
        assert "shortfall" not in pruned(**asked).report.settings
