"""The views of a batch: image by image against PIL and torchvision, and blind to how the batch is cut."""

import numpy as np
import pytest
import torch
from torchvision.transforms import functional as F

from tests.data.transforms.views.conftest import picture
from usvit.config.views import ViewsConfig
from usvit.data.transforms.preprocessing import Preprocessing
from usvit.data.transforms.views import DeviceViews, Views, resolve_on
from usvit.data.transforms.views import rng as c
from usvit.data.transforms.views.gpu import blurred, gray, jittered, solarized
from usvit.seeding import derive_seed

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GREY_LEVELS = ((0.0, 0.0, 0.0), (1 / 255,) * 3)
SIZE = 40
SEEDS = torch.tensor([derive_seed(0, "test", index) for index in range(60)])
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def batch(n=60, size=SIZE):
    return torch.from_numpy(np.stack([np.asarray(picture(index, (size, size))) for index in range(n)]))


def planes(images):
    return images.permute(0, 3, 1, 2).float()


def device_views(on_device=True, statistics=GREY_LEVELS, **settings):
    return DeviceViews(ViewsConfig(**settings), *statistics, on_device=on_device)


ALL = {"policy": "three_augment", "color_jitter": 0.3, "erasing": 0.5}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("settings", [{}, {"color_jitter": 0.4}, {"erasing": 1.0}, ALL])
def test_an_image_depends_on_its_own_seed_alone(settings, device):
    views = device_views(statistics=(MEAN, STD), **settings)
    images, seeds = batch().to(device), SEEDS.to(device)
    torch.manual_seed(0)
    whole = views(images, seeds)
    torch.manual_seed(1)
    cut = torch.cat([views(images[a:b], seeds[a:b]) for a, b in ((0, 1), (1, 8), (8, 60))])
    assert torch.equal(whole, cut)
    back = views(images.flip(0), seeds.flip(0)).flip(0)
    assert torch.equal(whole, back)
    assert whole.dtype == torch.float32
    assert whole.shape == (60, 3, SIZE, SIZE)


def test_stored_pixels_and_the_global_generator_stay():
    images, state = batch(), torch.get_rng_state()
    before = images.clone()
    device_views(**ALL)(images, SEEDS)
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_without_changes_it_normalises_as_every_other_part_of_usvit():
    made = device_views(on_device=False, statistics=(MEAN, STD), policy="three_augment", color_jitter=0.3)(
        batch(), SEEDS
    )
    assert torch.equal(made, Preprocessing(SIZE, "squash", MEAN, STD).normalised(batch()))


@pytest.mark.parametrize("jitter", [0.0, 0.3])
def test_the_device_makes_what_the_host_would_have(jitter):
    """Grey and solarised pictures to the level; PIL's blur is an approximation of the Gaussian."""
    config = ViewsConfig(policy="three_augment", color_jitter=jitter)
    host, left = Views(config, 64, on_device=False), Views(config, 64, on_device=True)
    source = picture(1, (120, 100))
    seeds = SEEDS.tolist()
    expected = np.stack([host(source, seed) for seed in seeds])
    cropped = torch.from_numpy(np.stack([left(source, seed) for seed in seeds]))
    made = DeviceViews(config, *GREY_LEVELS, on_device=True)(cropped, SEEDS).permute(0, 2, 3, 1).numpy()
    away = np.abs(made - expected)
    choice = np.array([int(3 * c.numbers(seed)[c.CHOICE]) for seed in seeds])
    assert set(choice) == {0, 1, 2}
    assert away[choice < 2].max() <= 1.001
    assert away[choice == 2].mean() < 0.5
    assert away[choice == 2].max() <= 12


@pytest.mark.parametrize("parts", [("gray",), ("gray", "solarize"), ("solarize", "gray")])
def test_the_device_makes_the_parts_of_three_augment_that_the_host_makes(parts):
    config = ViewsConfig(policy="three_augment", three_augment=parts)
    host, left = Views(config, 32, on_device=False), Views(config, 32, on_device=True)
    source, seeds = picture(1, (60, 50)), SEEDS.tolist()
    expected = np.stack([host(source, seed) for seed in seeds])
    cropped = torch.from_numpy(np.stack([left(source, seed) for seed in seeds]))
    made = DeviceViews(config, *GREY_LEVELS, on_device=True)(cropped, SEEDS).permute(0, 2, 3, 1).numpy()
    assert np.abs(made - expected).max() <= 1.001


def test_gray_and_solarized_are_torchvision_s():
    images = planes(batch(8))
    whole = images.byte()
    expected = torch.from_numpy(
        np.stack([np.asarray(F.rgb_to_grayscale(F.to_pil_image(one))) for one in whole])[:, None]
    ).float()
    assert torch.equal(gray(images), expected)
    assert (gray(images) - F.rgb_to_grayscale(whole).float()).abs().max() <= 1
    assert torch.equal(solarized(images), F.solarize(whole, 128).float())


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 1.3, 2.0])
def test_blur_is_the_gaussian_of_torchvision(sigma):
    images = planes(batch(4))
    wide = torch.nn.functional.pad(images, (8, 8, 8, 8), mode="replicate")
    expected = F.gaussian_blur(wide, [17, 17], [sigma, sigma])[:, :, 8:-8, 8:-8]
    made = blurred(images, torch.full((4,), sigma))
    assert (made - expected).abs().max() <= 0.51  # it is rounded


def test_each_image_has_a_blur_of_its_own():
    images, sigmas = planes(batch(3)), torch.tensor([0.3, 1.0, 1.9])
    together = blurred(images, sigmas)
    for index in range(3):
        assert torch.equal(together[index], blurred(images[index, None], sigmas[index, None])[0])


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("factor", [0.6, 1.0, 1.4])
def test_jitter_is_torchvision_s_within_a_grey_level(which, factor):
    images = planes(batch(6))
    adjust = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation)[which]
    expected = torch.stack([F.pil_to_tensor(adjust(F.to_pil_image(one.byte()), factor)) for one in images]).float()
    factors = torch.ones(6, 3)
    factors[:, which] = factor
    made = jittered(images, factors, torch.tensor([0, 1, 2]).expand(6, 3))
    assert (made - expected).abs().max() <= 1.001


def test_order_of_the_jitter_is_each_image_s_own():
    images = planes(batch(2))
    factors = torch.tensor([[1.4, 0.6, 0.7]] * 2)
    made = jittered(images, factors, torch.tensor([[0, 1, 2], [2, 1, 0]]))
    for index, order in enumerate(((0, 1, 2), (2, 1, 0))):
        expected = F.to_pil_image(images[index].byte())
        for which in order:
            adjust = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation)[which]
            expected = adjust(expected, float(factors[0, which]))
        away = (made[index] - F.pil_to_tensor(expected)).abs()
        assert away.max() <= 2.001, "a level cut off early grows with the later changes"
        assert away.mean() < 0.05


def boxes(made, plain):
    """Of each image the changed pixels: (height, width, their number), or None."""
    found = []
    for one, other in zip(made, plain, strict=True):
        rows, columns = torch.nonzero((one != other).any(0), as_tuple=True)
        if len(rows) == 0:
            found.append(None)
            continue
        box = (slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1))
        assert (one != other)[:, box[0], box[1]].all(), "every pixel of the box is changed"
        found.append(((rows.max() - rows.min() + 1).item(), (columns.max() - columns.min() + 1).item()))
    return found


@pytest.mark.parametrize("on_device", [True, False])
def test_erasing_fills_one_box_of_timm_s_sizes_with_normal_noise(on_device):
    seeds = torch.tensor([derive_seed(1, "erase", index) for index in range(400)])
    images = torch.full((400, SIZE, SIZE, 3), 77, dtype=torch.uint8)
    settings = {"hflip": 0.0}
    plain = device_views(on_device, (MEAN, STD), **settings)(images, seeds)
    made = device_views(on_device, (MEAN, STD), erasing=0.25, **settings)(images, seeds)
    found = boxes(made, plain)
    sizes = [size for size in found if size is not None]
    assert abs(len(sizes) - 100) < 3.5 * np.sqrt(400 * 3 / 16)
    for height, width in sizes:  # half a pixel of rounding on each side
        assert (height - 0.5) * (width - 0.5) <= SIZE * SIZE / 3
        assert (height + 0.5) * (width + 0.5) >= SIZE * SIZE * 0.02
        assert (height - 0.5) / (width + 0.5) <= 1 / 0.3
        assert (height + 0.5) / (width - 0.5) >= 0.3
    noise = made[made != plain]
    assert abs(noise.mean()) < 0.05
    assert abs(noise.std() - 1) < 0.05


def test_noise_of_two_images_is_not_the_same():
    images = torch.zeros(30, SIZE, SIZE, 3, dtype=torch.uint8)
    made = device_views(erasing=1.0, hflip=0.0)(images, SEEDS[:30])
    firsts = [one[one != 0][:5] for one in made]
    assert len({tuple(first.tolist()) for first in firsts}) == 30


def test_flips_half():
    images = batch()
    made = device_views()(images, SEEDS).round()
    flipped = (made == planes(images).flip(-1)).flatten(1).all(1)
    same = (made == planes(images)).flatten(1).all(1)
    assert (flipped ^ same).all()
    assert torch.equal(flipped, c.number_table(SEEDS)[:, c.HFLIP] < 0.5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("settings", [{"erasing": 1.0}, {**ALL}])
def test_a_gpu_makes_what_the_cpu_makes(settings):
    views = device_views(**settings)
    there = views(batch().cuda(), SEEDS.cuda()).cpu()
    assert (there - views(batch(), SEEDS)).abs().float().quantile(0.999) <= 1.5


@pytest.mark.parametrize(
    ("on", "device_type", "expected"),
    [
        ("auto", "cpu", False),
        ("auto", "cuda", True),
        ("cpu", "cuda", False),
        ("device", "cpu", True),
    ],
)
def test_who_computes_is_chosen_by_the_device(on, device_type, expected):
    assert resolve_on(on, device_type) is expected
