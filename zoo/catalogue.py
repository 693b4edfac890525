"""Every network of the zoo by name."""

from __future__ import annotations

from zoo import audio, huggingface, image, medical, monai, stereo, video
from zoo.entry import Entry

FAMILIES = (monai, medical, video, stereo, image, audio, huggingface)

ZOO: dict[str, Entry] = {entry.name: entry for family in FAMILIES for entry in family.NETWORKS}
