"""Clips against independent decodes, and crops against arithmetic."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ranp.errors import DataError, UnsupportedError
from ranp.paper.tasks.ucf101 import clips as clips
from ranp.paper.tasks.ucf101.clips import FRAMES, MEAN, Crop, centre, corner, cut, inspect, open_reel, read_clip, starts
from tests.support.real_data import real_data

av = pytest.importorskip("av")
Image = pytest.importorskip("PIL.Image")


def brightness(frame: int) -> int:
    """Each of the first 63 frames has a level of its own, four apart: compression shifts a level by less than two."""
    return 2 + 4 * (frame % 63)


def picture(frame: int, width: int, height: int) -> np.ndarray:
    """Grain that stays, so that not every frame is a key frame, and a patch whose brightness is the frame's number."""
    pixels = np.random.default_rng(0).integers(90, 160, (height, width, 3), dtype=np.uint8)
    pixels[:16, :16] = brightness(frame)
    return pixels


def write_video(
    path: Path, frames: int, *, codec: str = "mpeg4", size: tuple[int, int] = (64, 48), between: int = 0
) -> Path:
    """A video whose frames tell their number by their brightness."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.bit_rate = 4_000_000
        stream.codec_context.gop_size = 12
        stream.codec_context.max_b_frames = between
        for number in range(frames):
            for packet in stream.encode(av.VideoFrame.from_ndarray(picture(number, *size), format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path


def whole(path: Path) -> list[np.ndarray]:
    """All frames, decoded in one go."""
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def read(path: Path, start: int) -> list[torch.Tensor]:
    with open_reel(path) as reel:
        return read_clip(reel, start)


def told(frames: list[torch.Tensor]) -> list[int]:
    """The numbers that frames tell."""
    return [round((float(frame[:, 2:14, 2:14].float().mean()) - 2) / 4) for frame in frames]


@pytest.mark.parametrize(("codec", "between"), [("mpeg4", 0), ("mpeg4", 2), ("ffv1", 0), ("rawvideo", 0)])
def test_a_clip_has_the_frames_it_should_have_wherever_it_starts(tmp_path: Path, codec: str, between: int) -> None:
    video = write_video(tmp_path / "v.avi", 50, codec=codec, between=between)
    for start in (0, 1, 11, 12, 13, 23, 34):
        assert told(read(video, start)) == list(range(start, start + FRAMES))


def test_seeking_does_not_decode_from_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    video = write_video(tmp_path / "v.avi", 60)
    converted: list[int] = []
    counted = clips._Stream._decode

    def decode(self: clips._Stream, offset: int | None):
        for frame in counted(self, offset):
            converted.append(frame.pts)
            yield frame

    monkeypatch.setattr(clips._Stream, "_decode", decode)
    assert told(read(video, 40)) == list(range(40, 56))
    assert converted == list(range(36, 56)), "from the key frame before the clip to its last frame"


@pytest.mark.parametrize("length", [1, 5, 15, 16])
def test_a_short_video_goes_round(tmp_path: Path, length: int) -> None:
    video = write_video(tmp_path / "v.avi", length)
    assert told(read(video, 0)) == [number % length for number in range(FRAMES)]


def test_a_folder_of_frames_equals_the_video(tmp_path: Path) -> None:
    video = write_video(tmp_path / "v.avi", 20)
    folder = tmp_path / "v"
    folder.mkdir()
    for number, frame in enumerate(whole(video), 1):
        Image.fromarray(frame).save(folder / f"image_{number:05}.png")
    (folder / "n_frames").write_text("20")
    with open_reel(folder) as reel:
        assert reel.length == 20
    for start in (0, 4):
        for ours, theirs in zip(read(folder, start), read(video, start), strict=True):
            assert torch.equal(ours, theirs)


def test_frames_follow_their_numbers_not_their_letters(tmp_path: Path) -> None:
    for number in (1, 2, 10, 11):
        Image.fromarray(np.full((8, 8, 3), 10 * number, np.uint8)).save(tmp_path / f"frame{number}.jpg", quality=95)
    levels = [round(float(frame.float().mean()) / 10) for frame in read(tmp_path, 0)[:4]]
    assert levels == [1, 2, 10, 11]


@pytest.mark.parametrize("name", ["g23_c01", "g24_c01"])
def test_real_clips_equal_a_decode_of_the_whole_video(name: str) -> None:
    video = real_data("ucf101") / "SoccerJuggling" / f"v_SoccerJuggling_{name}.avi"
    frames = whole(video)
    assert {frame.shape for frame in frames} == {(240, 320, 3)}
    with open_reel(video) as reel:
        assert reel.length == len(frames)
        for start in (0, 1, 7, 100, 119, 120, 121, len(frames) - FRAMES):
            clip = read_clip(reel, start)
            for ours, theirs in zip(clip, frames[start : start + FRAMES], strict=True):
                assert np.array_equal(ours.permute(1, 2, 0).numpy(), theirs), start
    inspect(video)


@pytest.mark.parametrize(
    ("length", "expected"), [(1, [0, 0, 0]), (16, [0, 0, 0]), (18, [0, 1, 2]), (100, [0, 42, 84]), (240, [0, 112, 224])]
)
def test_validation_clips_reach_from_the_first_frame_to_the_last(length: int, expected: list[int]) -> None:
    assert starts(length, 3) == expected


def test_corner_crops_are_the_five_places_at_the_five_scales() -> None:
    rng = np.random.default_rng(0)
    seen = {corner(240, 320, rng) for _ in range(3000)}
    sides = [240, 201, 169, 142, 120]  # 240 * .8409 ** k, rounded down
    expected = set()
    for side in sides:
        for top, left in [
            ((240 - side) // 2, (320 - side) // 2),
            (0, 0),
            (0, 320 - side),
            (240 - side, 0),
            (240 - side, 320 - side),
        ]:
            expected |= {Crop(top, left, side, True), Crop(top, left, side, False)}
    assert seen == expected


def test_a_crop_is_cut_where_it_says_flipped_and_less_the_mean() -> None:
    frame = torch.arange(3 * 12 * 16, dtype=torch.uint8).reshape(3, 12, 16)
    clip = cut([frame] * 4, Crop(2, 5, 8), 8)
    assert clip.shape == (3, 4, 8, 8)
    assert clip.dtype == torch.float32
    mean = torch.tensor(MEAN).view(3, 1, 1)
    assert torch.equal(clip[:, 1], frame[:, 2:10, 5:13].float() - mean)
    assert torch.equal(cut([frame], Crop(2, 5, 8, flip=True), 8)[:, 0], clip[:, 0].flip(-1))


def test_resizing_is_that_of_pillow() -> None:
    """The authors resize with Pillow's bilinear filter, which smooths where it shrinks."""
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (240, 320, 3), dtype=np.uint8)
    frame = torch.from_numpy(picture).permute(2, 0, 1)
    for crop, size in ((centre(240, 320), 112), (Crop(0, 0, 120), 224)):
        ours = cut([frame], crop, size)[:, 0] + torch.tensor(MEAN).view(3, 1, 1)
        box = (crop.left, crop.top, crop.left + crop.side, crop.top + crop.side)
        theirs = Image.fromarray(picture).crop(box).resize((size, size), Image.Resampling.BILINEAR)
        assert np.abs(ours.permute(1, 2, 0).numpy() - np.asarray(theirs, dtype=np.float32)).max() <= 1.01


def test_the_centre_is_the_largest_square_in_the_middle() -> None:
    assert centre(240, 320) == Crop(0, 40, 240)
    assert centre(321, 240) == Crop(40, 0, 240)


def refused(path: Path, start: int = 0) -> str:
    with pytest.raises(DataError) as caught:
        read(path, start)
    message = str(caught.value)
    assert "Download it again, or remove it and pass --allow-missing." in message
    return message


def test_a_torn_video_is_named(tmp_path: Path) -> None:
    video = write_video(tmp_path / "v.avi", 60)
    data = video.read_bytes()
    video.write_bytes(data[: len(data) // 2])
    assert str(video) in refused(video, 40)
    with pytest.raises(DataError, match=r"v\.avi is torn: it has \d+ of the 60 frames it promises"):
        inspect(video)


def test_a_video_that_ends_a_little_before_its_time_ends_with_its_last_clip(tmp_path: Path) -> None:
    video = write_video(tmp_path / "v.avi", 50, codec="rawvideo")
    with av.open(str(video)) as container:
        ends = [packet.pos + packet.size for packet in container.demux(video=0) if packet.size]
    video.write_bytes(video.read_bytes()[: ends[46]])
    with open_reel(video) as reel:
        assert reel.length == 50, "as its header says"
        assert told(read_clip(reel, 34)) == list(range(31, 47)), "the last sixteen of 47"
        assert told(read_clip(reel, 20)) == list(range(20, 36))
    inspect(video)


def test_what_is_not_a_video_is_named(tmp_path: Path) -> None:
    video = tmp_path / "v.avi"
    video.write_text("<html>404 not found</html>" * 100)
    assert "v.avi cannot be decoded (" in refused(video)
    with pytest.raises(DataError, match=r"v\.avi cannot be decoded"):
        inspect(video)


def test_sound_without_a_picture_is_named(tmp_path: Path) -> None:
    path = tmp_path / "v.avi"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.rate = 8000
        for packet in [*stream.encode(frame), *stream.encode()]:
            container.mux(packet)
    assert "v.avi has no video in it" in refused(path)


def test_a_folder_without_frames_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    assert f"{tmp_path} has no frames: expected .jpg, .jpeg, .png files" in refused(tmp_path)


def test_frames_of_two_sizes_are_named(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((8, 12, 3), np.uint8)).save(tmp_path / "image_00001.png")
    Image.fromarray(np.zeros((8, 10, 3), np.uint8)).save(tmp_path / "image_00002.png")
    assert "image_00002.png is 10x8 but the frames before it are 12x8" in refused(tmp_path)


def test_a_torn_frame_is_named(tmp_path: Path) -> None:
    (tmp_path / "image_00001.jpg").write_bytes(b"\xff\xd8\xff\xe0 torn")
    assert "image_00001.jpg" in refused(tmp_path)


def test_without_pyav_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    video = write_video(tmp_path / "v.avi", 2)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'ranp\[video\]'"):
        read(video, 0)
