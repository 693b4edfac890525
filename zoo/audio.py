"""Networks for sound, with convolutions in one dimension: a vocoder, a codec and an encoder of speech."""

from __future__ import annotations

from zoo import audio_encodec, audio_hifigan, audio_wav2vec
from zoo.entry import Entry

NETWORKS: tuple[Entry, ...] = (
    *audio_hifigan.NETWORKS,
    *audio_encodec.NETWORKS,
    *audio_wav2vec.NETWORKS,
)
