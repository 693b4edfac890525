"""``python -m ranp`` is the ``ranp`` command."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False) and sys.path[0] == os.getcwd():
        # Python puts the working folder first for ``-m``: a file there would take the place of an installed module.
        del sys.path[0]
    from ranp.cli import main

    raise SystemExit(main())
