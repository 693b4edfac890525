"""Every network of the zoo by name."""

from __future__ import annotations

from zoo import monai, stereo, video
from zoo.entry import Entry

ZOO: dict[str, Entry] = {entry.name: entry for entry in (*monai.NETWORKS, *video.NETWORKS, *stereo.NETWORKS)}
