import json

import numpy as np
import pytest
from PIL import Image

from usvit.data.audit import policy_preview
from usvit.data.audit.policy_preview import OUTLINE, write_preview
from usvit.errors import UsvitError

SIZE, GAP, LINE = 64, policy_preview._GAP, policy_preview._LINE


def make(busi, out, **options):
    settings = {"policy": "us", "n": 5, "variants": 3, "size": SIZE, **options}
    return write_preview(out, "busi", roots={"": busi}, **settings)


def cells(path, rows: int, variants: int = 3) -> np.ndarray:
    """(rows, 1 + variants, S, S, 3): the pictures of a preview with one block."""
    pixels = np.asarray(Image.open(path))
    tops = [2 * GAP + LINE + row * (LINE + SIZE + GAP) + LINE for row in range(rows)]
    lefts = [GAP + column * (SIZE + GAP) for column in range(1 + variants)]
    return np.array([[pixels[top : top + SIZE, left : left + SIZE] for left in lefts] for top in tops])


def outline(picture: np.ndarray) -> np.ndarray:
    return (picture == OUTLINE).all(axis=-1)


def test_each_row_shows_an_image_with_its_lesion_outlined_and_different_variants(busi, tmp_path):
    shown = make(busi, tmp_path / "new" / "p.png")
    grid = cells(tmp_path / "new" / "p.png", 5)
    for row, one in zip(grid, shown, strict=True):
        first = row[0].copy()
        assert outline(first).any() == (one.record.label != "normal")
        # But for the line the first column is the image as the network gets it.
        first[outline(first)] = one.pixels[outline(first)]
        assert (first == one.pixels).all()
        assert len({picture.tobytes() for picture in row}) == 4
        assert not outline(row[1:]).any()


def test_the_outline_runs_along_the_inside_of_the_mask(busi, tmp_path):
    for one, row in zip(make(busi, tmp_path / "p.png"), cells(tmp_path / "p.png", 5), strict=True):
        line = outline(row[0])
        assert (one.mask | ~line).all()
        rows, columns = np.nonzero(one.mask)
        if len(rows):
            assert line[rows.min()].any() and line[rows.max()].any()
            assert line[:, columns.min()].any() and line[:, columns.max()].any()
            assert line.sum() < one.mask.sum() / 2


def test_classes_take_turns(busi, tmp_path):
    labels = [one.record.label for one in make(busi, tmp_path / "p.png", n=7)]
    assert sorted(labels.count(label) for label in ("benign", "malignant", "normal")) == [2, 2, 3]
    everything = make(busi, tmp_path / "all.png", n=50, variants=1)
    assert len({one.record.image_id for one in everything}) == 26


def test_the_same_seed_writes_the_same_picture_and_another_another(busi, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        make(busi, tmp_path / f"{name}.png", seed=seed)
    a, b, c = (np.asarray(Image.open(tmp_path / f"{name}.png")) for name in "abc")
    assert (a == b).all()
    assert (a != c).any()


@pytest.mark.slow
def test_all_is_one_block_a_policy_over_the_same_images(busi, tmp_path):
    one, every = make(busi, tmp_path / "one.png"), make(busi, tmp_path / "all.png", policy="all")
    assert [a.record for a in one] == [b.record for b in every]
    heights = [Image.open(tmp_path / name).height - GAP for name in ("one.png", "all.png")]
    assert heights[1] == 3 * heights[0]


def test_none_shows_what_the_network_would_get(busi, tmp_path):
    shown = make(busi, tmp_path / "p.png", policy="none", resize="squash")
    for row, one in zip(cells(tmp_path / "p.png", 5), shown, strict=True):
        assert (row[1:] == one.pixels).all()
        assert (one.pixels[0].any(), one.pixels[-1].any()) == (True, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "ligth"}, r"Unknown augmentation policy 'ligth'. Nearest: light"),
        ({"resize": "pda"}, r"Unknown resize 'pda'. Nearest: pad"),
    ],
)
def test_an_unknown_name_suggests_the_nearest_and_writes_nothing(busi, tmp_path, options, message):
    with pytest.raises(UsvitError, match=message):
        make(busi, tmp_path / "out" / "p.png", **options)
    assert not (tmp_path / "out").exists()


def test_an_existing_file_is_never_overwritten_and_only_png_is_written(busi, tmp_path):
    (tmp_path / "p.png").write_text("mine")
    with pytest.raises(UsvitError, match="exists already"):
        make(busi, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_text() == "mine"
    with pytest.raises(UsvitError, match=r"ends in .png, not 'p.jpg'"):
        make(busi, tmp_path / "p.jpg")


def test_a_damaged_image_is_named_and_nothing_is_written(busi, tmp_path):
    for path in busi.glob("malignant/malignant (?).png"):
        path.write_bytes(b"")
    with pytest.raises(UsvitError, match=r"malignant \(\d\).png"):
        make(busi, tmp_path / "p.png")
    assert not (tmp_path / "p.png").exists()


def test_command_writes_the_picture_and_says_what_it_shows(usvit, busi, tmp_path):
    options = ("--dataset", "busi", "--data-root", busi, "--n", 4, "--variants", 2, "--size", SIZE)
    answer = usvit("data", "preview", *options, "--policy", "trivial", "--json", "--out", tmp_path / "p.png")
    assert answer.code == 0
    said = json.loads(answer.out)
    assert said["policy"] == "trivial"
    assert len(said["images"]) == 4
    assert {"dataset", "image_id", "label"} == set(said["images"][0])
    assert Image.open(tmp_path / "p.png").width == GAP + 3 * (SIZE + GAP)
    again = usvit("data", "preview", *options, "--out", tmp_path / "p.png")
    assert again.code == 2
    assert again.err.startswith("Error: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dataset", "bsui", "--out", "p.png"), "Nearest: busi"),
        (("--dataset", "busi", "--data-root", "nowhere", "--out", "p.png"), "nowhere does not exist"),
        (("--n", "0", "--out", "p.png"), "--n"),
        ((), "--out"),
    ],
)
def test_wrong_input_is_exit_2_and_an_explanation(usvit, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    answer = usvit("data", "preview", *arguments)
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert list(tmp_path.iterdir()) == []
