from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ranp.errors import StorageError
from ranp.files.claims import claimed
from tests.support import processes


def test_a_claim_keeps_others_out_and_ends_with_its_process(tmp_path: Path) -> None:
    lock = tmp_path / "deep" / "lock"
    program = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from ranp.files.claims import claimed
        with claimed(Path(sys.argv[1]), wait=True) as mine:
            print(mine, flush=True)
            time.sleep(600)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock)], stdout=subprocess.PIPE, text=True, env=processes.environment()
    ) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline().strip() == "True"
            with claimed(lock, wait=False) as mine:
                assert not mine
        finally:
            other.kill()
            other.wait()
    with claimed(lock, wait=False) as mine:
        assert mine


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Name another folder"), claimed(tmp_path / "file" / "lock", wait=True):
        pass
