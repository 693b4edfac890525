"""Files of figures: the same bytes twice, small, readable, and nothing left behind in matplotlib."""

from __future__ import annotations

import base64
import io
import re
import subprocess
import sys
import threading
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from ranp.errors import StorageError, UnsupportedError
from ranp.reporting import drawing
from ranp.reporting.drawing.saving import compacted

RATIOS = {"vanilla": [0.1, 0.9, 0.3], "ranp-f": [0.5, 0.4, 0.6]}
LAYERS = ["stem.conv", "a$b.1.23456", "<head> & co"]


def pictures(seed=0):
    rng = np.random.default_rng(seed)
    image = drawing.Panel("Scene", "image", rng.random((32, 32, 3)))
    error = drawing.Panel("Error", "image", rng.random((32, 32)), scale=drawing.Scale("error (px)", 0, 1, error=True))
    return [drawing.Picture("Sample", (image, error))]


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_the_same_figure_gives_the_same_bytes(tmp_path, suffix):
    for name in ("one", "two"):
        drawing.save(drawing.examples(pictures()), tmp_path / f"{name}{suffix}")
    figure = drawing.examples(pictures())
    for name in ("three", "four"):
        drawing.save(figure, tmp_path / f"{name}{suffix}")
    assert len({(tmp_path / f"{name}{suffix}").read_bytes() for name in ("one", "two", "three", "four")}) == 1
    drawing.save(drawing.examples(pictures(1)), tmp_path / f"other{suffix}")
    assert (tmp_path / f"other{suffix}").read_bytes() != (tmp_path / f"one{suffix}").read_bytes()
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["four", "one", "other", "three", "two"]


def test_names_stand_in_the_svg_as_they_are(tmp_path):
    path = tmp_path / "retained.svg"
    drawing.save(drawing.retained(RATIOS, LAYERS), path)
    root = ElementTree.parse(path).getroot()
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"stem", "a$b.1", "<head> & co", "RANP-f", "100 %"} <= texts
    assert len(path.read_bytes()) < 20_000
    assert "DejaVu Sans" in root.attrib["font-family"]


def test_references_inside_of_a_compacted_svg_hold():
    svg = drawing.rendered(drawing.retained(RATIOS, LAYERS)).decode()
    names = re.findall(r' id="([^"]*)"', svg)
    assert len(names) == len(set(names))
    assert {name for name in re.findall(r"#([\w.-]+)", svg) if not re.fullmatch(r"[0-9a-fA-F]{6}", name)} <= set(names)


def encoded(pixels, mode):
    buffer = io.BytesIO()
    Image.fromarray(pixels, mode).save(buffer, format="png")
    return f'<svg ><image href="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"/></svg>'


def decoded(svg):
    kind, data = re.search(r'data:image/(\w+);base64,([^"]*)"', svg).groups()
    return kind, Image.open(io.BytesIO(base64.b64decode(data)))


def test_few_colours_lose_nothing():
    rng = np.random.default_rng(0)
    blocks = np.kron(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8), np.ones((40, 40, 1), dtype=np.uint8))
    whole = np.concatenate([blocks, np.full((*blocks.shape[:2], 1), 255, dtype=np.uint8)], axis=2)
    kind, image = decoded(compacted(encoded(whole, "RGBA")))
    assert kind == "png"
    np.testing.assert_array_equal(np.asarray(image.convert("RGB")), blocks)


def test_photographs_stay_what_they_show():
    smooth = np.linspace(0, 255, 90 * 90 * 3).reshape(90, 90, 3)
    noisy = (smooth + np.random.default_rng(0).normal(0, 4, smooth.shape)).clip(0, 255).astype(np.uint8)
    whole = np.concatenate([noisy, np.full((90, 90, 1), 255, dtype=np.uint8)], axis=2)
    before = encoded(whole, "RGBA")
    after = compacted(before)
    kind, image = decoded(after)
    assert kind == "jpeg"
    assert len(after) < len(before) / 2
    assert np.abs(np.asarray(image.convert("RGB")).astype(float) - noisy).mean() < 4


def test_clouds_of_points_stay_transparent():
    cloud = np.zeros((60, 60, 4), dtype=np.uint8)
    cloud[10:20, 10:20] = (0, 114, 178, 76)
    cloud[15:30, 15:30] = (0, 114, 178, 140)
    _, image = decoded(compacted(encoded(cloud, "RGBA")))
    assert np.abs(np.asarray(image.convert("RGBA")).astype(int)[..., 3] - cloud[..., 3]).max() <= 16


def test_another_suffix_and_a_missing_folder_are_refused(tmp_path):
    figure = drawing.retained(RATIOS, LAYERS)
    with pytest.raises(UnsupportedError, match=r"'\.gif'"):
        drawing.save(figure, tmp_path / "figure.gif")
    with pytest.raises(StorageError, match="cannot write"):
        drawing.save(figure, tmp_path / "missing" / "figure.svg")
    assert not list(tmp_path.iterdir())


def test_settings_are_what_they_were_and_do_not_matter():
    plain = drawing.rendered(drawing.retained(RATIOS, LAYERS))
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "path"}):
        before = dict(mpl.rcParams)
        assert drawing.rendered(drawing.retained(RATIOS, LAYERS)) == plain
        assert dict(mpl.rcParams) == before


def test_threads_draw_what_one_thread_draws():
    expected = drawing.rendered(drawing.retained(RATIOS, LAYERS))
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(drawing.rendered(drawing.retained(RATIOS, LAYERS))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [expected] * 3


def test_matplotlib_is_imported_when_something_is_drawn_and_pyplot_never():
    code = (
        "import sys\nfrom ranp import drawing\nassert 'matplotlib' not in sys.modules\n"
        "drawing.rendered(drawing.retained({'a': [0.5]}, ['b']))\nassert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
