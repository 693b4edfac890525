"""Runs the benchmarks that are named, all of them if none is, and prints their tables in Markdown."""

from __future__ import annotations

import argparse
import logging

import torch

from benchmarks import (
    analysis,
    budgets,
    export,
    kernels,
    limit,
    memory,
    pretrained,
    resuming,
    scoring,
    search,
    shapenet_table,
    slim_speed,
    slim_step,
    time_budgets,
    time_resource,
    used_budgets,
    zoo,
)

BENCHMARKS = {
    "scoring": scoring.run,
    "analysis": analysis.run,
    "search": search.run,
    "slim": slim_step.run,
    "shapenet": shapenet_table.run,
    "budgets": budgets.run,
    "used-budgets": used_budgets.run,
    "memory": memory.run,
    "pretrained": pretrained.run,
    "time-budgets": time_budgets.run,
    "slim-speed": slim_speed.run,
    "kernels": kernels.run,
    "time-resource": time_resource.run,
    "limit": limit.run,
    "export": export.run,
    "zoo": zoo.run,
}
ON_REQUEST = set(BENCHMARKS) - {"scoring", "analysis", "search", "slim"}
"""Minutes on a laptop (full-size networks on real arrays, exporters that are slow): run when named."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help=f"of {', '.join(BENCHMARKS)}; default: all but {', '.join(sorted(ON_REQUEST))}",
    )
    parser.add_argument("--quick", action="store_true", help="few pairs, small networks: does it run at all?")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch, default 1: least noise")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    torch.set_num_threads(arguments.threads)
    logging.getLogger("ranp").setLevel(logging.ERROR)
    print(f"{resuming.setting()}\n")
    for name in arguments.names or [name for name in BENCHMARKS if name not in ON_REQUEST]:
        BENCHMARKS[name](quick=arguments.quick)


if __name__ == "__main__":
    main()
