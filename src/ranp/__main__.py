"""``python -m ranp`` is the ``ranp`` command."""

from __future__ import annotations

from ranp.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
