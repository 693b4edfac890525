from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ranp.errors import FULL_DISK, DataError, RanpError, UnsupportedError, exit_status
from ranp.workers import check_all_ran, side_by_side
from tests.support import pieces, processes


def outcomes(found: Iterator[tuple[int, object]]) -> dict[int, object]:
    return {item: str(value) if isinstance(value, DataError) else value for item, value in found}


SQUARES = {1: 1, 2: 4, 3: "three is refused", 4: 16}


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_item_is_done_and_a_refusal_stops_no_other(jobs: int) -> None:
    told: list[tuple[str, int, int, str]] = []
    found = side_by_side(pieces.square, [1, 2, 3, 4], jobs=jobs, progress=lambda *message: told.append(message))
    assert outcomes(found) == SQUARES
    assert {message[:3] for message in told} == {("square", item, 9) for item in SQUARES}
    assert (str(os.getpid()) in {message[3] for message in told}) == (jobs == 1)


@pytest.mark.slow
def test_processes_of_a_pool_share_the_cores() -> None:
    found = dict(side_by_side(pieces.threads, list(range(6)), jobs=2))
    assert len({pid for pid, _ in found.values()}) == 2  # type: ignore[misc]
    assert {count for _, count in found.values()} == {max(1, (os.cpu_count() or 1) // 2)}  # type: ignore[misc]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_is_known_wherever_it_was(jobs: int) -> None:
    found = [error for _, error in side_by_side(pieces.full_disk, [1, 2], jobs=jobs) if isinstance(error, RanpError)]
    assert [exit_status(error) for error in found] == [FULL_DISK] * 2
    with pytest.raises(RanpError, match="2 of 3 cells could not be run") as told:
        check_all_ran({"first": RanpError("another reason"), "second": found[0]}, 3)
    assert exit_status(told.value) == FULL_DISK


def test_a_killed_process_of_a_pool_is_one_clear_error() -> None:
    with pytest.raises(RanpError, match=r"ended before its work was done.*Run the same command again"):
        list(side_by_side(pieces.die, [1, 2], jobs=2))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_pool_ends_with_whoever_started_it(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        from tests.support import pieces
        from ranp.workers import side_by_side
        if __name__ == "__main__":
            list(side_by_side(pieces.sleep, [1, 2], jobs=2))
        """
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    marks = tmp_path / "marks"
    marks.mkdir()
    environment = {**processes.environment(), "RANP_TEST_FOLDER": str(marks)}
    with subprocess.Popen([sys.executable, str(script)], env=environment) as running:
        while len(list(marks.iterdir())) < 2 and running.poll() is None:
            time.sleep(0.05)
        running.kill()
    children = [int(mark.name.split("-")[1]) for mark in marks.iterdir()]
    until = time.monotonic() + 60
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


@contextlib.contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + command[0], *command[1:]],
        env=processes.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of a real scheduler with a real worker whose nanny starts it again when it is killed."""
    pytest.importorskip("distributed")
    if os.name == "nt":
        pytest.skip("ends schedulers by their process group")
    folder = tmp_path_factory.mktemp("dask")
    file = folder / "scheduler.json"
    place = ("--scheduler-file", str(file))
    with started("dask_scheduler", "--port", "0", "--no-dashboard", *place):
        while not file.exists():
            time.sleep(0.05)
        with started("dask_worker", *place, "--nthreads", "1", "--no-dashboard", "--local-directory", str(folder)):
            yield file


def test_a_cluster_does_what_a_pool_does(scheduler: Path) -> None:
    assert outcomes(side_by_side(pieces.square, [1, 2, 3, 4], cluster=str(scheduler))) == SQUARES
    address = json.loads(scheduler.read_text())["address"]
    assert outcomes(side_by_side(pieces.square, [1, 2], cluster=address)) == {1: 1, 2: 4}


def test_a_worker_that_is_killed_is_replaced(scheduler: Path, tmp_path: Path) -> None:
    ((_, pid),) = side_by_side(pieces.die_once, [str(tmp_path)], cluster=str(scheduler))
    assert (tmp_path / "died").exists()
    assert isinstance(pid, int)


@pytest.mark.slow
def test_a_worker_with_many_threads_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    file = tmp_path / "scheduler.json"
    with (
        started("dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)),
        started("dask_worker", "--scheduler-file", str(file), "--nthreads", "2", "--no-dashboard"),
    ):
        while not file.exists():
            time.sleep(0.05)
        ((_, found),) = side_by_side(pieces.square, [1], cluster=str(file))
    assert "Start workers with --nthreads 1" in str(found)


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_refused() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(UnsupportedError, match=r"no Dask scheduler answers at 'tcp://127.0.0.1:9'.*dask scheduler"):
        list(side_by_side(pieces.square, [1], cluster="tcp://127.0.0.1:9"))
