"""Tasks that ways to choose widths are compared on: networks, data and trainings for ``ranp compare``.

- ``shapes16``: every voxel of a rod belongs to one of three classes by the rod's direction, balls are a fourth.
- ``brats``: patches of four real patients, one held out in turn, at a third of the resolution.
- ``large``: solids whose insides look alike, so that faces and edges far away decide.
- ``kinds``: a classifier that names the one solid in a volume.

Each is a module with ``model``, ``batches`` and ``train``; ``candidates`` holds arms beyond the package's methods. What
was asked, frozen and found stands in docs/evidence.md, every table beside its command.
"""
