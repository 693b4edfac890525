"""Independent pieces of work side by side: one after the other here, in a pool of processes, or on a Dask cluster.

A piece of work is a function that can be pickled by its name, called with an item and with a function that takes
progress. Pools and clusters are the engines' own: here is only what all three have in common.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import torch

from ranp.errors import RanpError, UnsupportedError, exit_status
from ranp.progress import Labelled, silent

Item = TypeVar("Item")
Value = TypeVar("Value")
Work = Callable[[Item, Labelled], Value]
"""``work(item, progress)``."""

SCHEDULERS = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster"}
"""Batch systems by name, and the class of dask-jobqueue that starts workers there."""
_DEATHS = 3
"""Workers of a cluster that may die over one item before it counts as failed."""

_told: Labelled = silent  # of a process of a pool: set when it starts


def side_by_side(
    work: Work[Item, Value],
    items: Sequence[Item],
    *,
    jobs: int = 1,
    cluster: str | None = None,
    progress: Labelled | None = None,
) -> Iterator[tuple[Item, Value | RanpError]]:
    """Does the work on every item and yields what came out, or why it could not be done, as soon as it is known.

    Args:
        work: Called with an item and with what takes its progress. Every engine but this process pickles it by name.
        items: One call for each.
        jobs: Processes; with the name of a batch system, its jobs.
        cluster: Address of a Dask scheduler (``tcp://host:8786``), its file, or ``slurm``, ``pbs`` or ``lsf``:
            workers that dask-jobqueue starts as its own configuration says. A worker that dies is replaced, and what it
            did is done again.
        progress: Takes the progress of work in this process and in its pool.

    Raises:
        UnsupportedError: The cluster cannot be used.
        RanpError: A process of the pool was killed.
    """
    progress = progress or silent
    if cluster is not None:
        yield from _on_cluster(work, items, cluster, jobs)
    elif jobs == 1 or len(items) < 2:
        for item in items:
            yield item, _outcome(partial(work, item, progress))
    else:
        yield from _in_pool(work, items, jobs, progress)


def check_all_ran(failed: Mapping[str, RanpError], total: int) -> None:
    """Refuses to go on where some cells failed; a full disk behind any of them is the cause that counts.

    Raises:
        RanpError: It names the first three.
    """
    if not failed:
        return
    reasons = "; ".join(f"{name}: {str(reason).rstrip('.')}" for name, reason in list(failed.items())[:3])
    more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
    raise RanpError(
        f"{len(failed)} of {total} cells could not be run: {reasons}{more}. The others are finished; mend it and run "
        "the same command again."
    ) from max(failed.values(), key=exit_status)


def _in_pool(
    work: Work[Item, Value], items: Sequence[Item], jobs: int, progress: Labelled
) -> Iterator[tuple[Item, Value | RanpError]]:
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    jobs = min(jobs, len(items))
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with _listening(messages, progress), ProcessPoolExecutor(jobs, context, _begin, (threads, messages)) as pool:
        futures = {pool.submit(_with_progress, work, item): item for item in items}
        try:
            for future in as_completed(futures):
                yield futures[future], _outcome(future.result)
        except BrokenProcessPool as error:
            raise RanpError(
                "a process ended before its work was done, often for want of memory. Run the same command again: it "
                "goes on where it was; with fewer jobs it needs less."
            ) from error
        except BaseException:  # nobody waits for what nobody will read
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list((pool._processes or {}).values()):
                process.terminate()
            raise


def _outcome(result: Callable[[], Value]) -> Value | RanpError:
    try:
        return result()
    except RanpError as error:
        return error


def _with_progress(work: Work[Item, Value], item: Item) -> Value:
    try:
        return work(item, _told)
    except RanpError as error:
        error.status = exit_status(error)  # type: ignore[attr-defined]  # its cause stays in this process
        raise


def _begin(threads: int, messages: Any) -> None:
    """Prepares a process of the pool; it ends when the one that started it is gone, however that ended."""
    global _told
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    torch.set_num_threads(threads)
    _told = lambda *message: messages.put(message)  # noqa: E731


@contextmanager
def _listening(messages: Any, progress: Labelled) -> Iterator[None]:
    """Passes on what the processes of the pool tell."""

    def listen() -> None:
        while (message := messages.get()) is not None:
            progress(*message)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        messages.put(None)
        thread.join()


def _on_cluster(
    work: Work[Item, Value], items: Sequence[Item], cluster: str, jobs: int
) -> Iterator[tuple[Item, Value | RanpError]]:
    with _client(cluster, jobs) as client:
        distributed: Any = import_module("distributed")
        futures = {client.submit(_alone, work, item, pure=False): item for item in items}
        for future in distributed.as_completed(futures):
            try:
                yield futures[future], _outcome(future.result)
            except distributed.KilledWorker:
                yield futures[future], RanpError(f"{_DEATHS} workers died over it, often for want of memory")


def _alone(work: Work[Item, Value], item: Item) -> Value:
    """Work on a cluster; seeds and threads belong to a process, so it does one piece of work at a time."""
    threads = import_module("distributed").get_worker().state.nthreads
    if threads > 1:
        raise UnsupportedError(f"a worker of the cluster has {threads} threads. Start workers with --nthreads 1.")
    return work(item, silent)


@contextmanager
def _client(cluster: str, jobs: int) -> Iterator[Any]:
    try:
        dask, connect = import_module("dask"), import_module("distributed").Client
    except ImportError as error:
        raise UnsupportedError("a cluster needs Dask. Install it with: pip install 'ranp[cluster]'.") from error
    limits = {"distributed.scheduler.allowed-failures": _DEATHS, "distributed.comm.timeouts.connect": "10s"}
    with dask.config.set(limits):
        if cluster in SCHEDULERS:
            with _jobqueue(cluster, jobs) as started, connect(started) as client:
                yield client
            return
        place = {"scheduler_file": cluster} if cluster.endswith(".json") else {"address": cluster}
        try:
            client = connect(**place)
        except (OSError, ValueError, TimeoutError) as error:
            raise UnsupportedError(
                f"no Dask scheduler answers at {cluster!r} ({str(error).splitlines()[0]}). Start one with: dask "
                "scheduler; then workers with: dask worker ADDRESS --nthreads 1."
            ) from error
        with client:
            yield client


@contextmanager
def _jobqueue(name: str, jobs: int) -> Iterator[Any]:
    try:
        dask_jobqueue: Any = import_module("dask_jobqueue")
    except ImportError as error:
        raise UnsupportedError(f"{name} needs dask-jobqueue. Install it with: pip install dask-jobqueue.") from error
    try:
        started = getattr(dask_jobqueue, SCHEDULERS[name])(cores=1, processes=1)
    except ValueError as error:
        raise UnsupportedError(
            f"{name} is not configured: {error}. See jobqueue.yaml in the documentation of dask-jobqueue."
        ) from error
    with started:
        started.scale(jobs=jobs)
        yield started
