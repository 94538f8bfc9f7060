"""Pictures whose marks are known."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import gaussian_filter


def tissue(seed: int, height: int = 300, width: int = 400, mean: float = 80) -> np.ndarray:
    """(H, W, 3) uint8: soft-edged texture, brighter in bands, as of a scan."""
    rng = np.random.default_rng(seed)
    speckle = gaussian_filter(rng.rayleigh(1, (height, width)), (1.5, 3))
    layers = gaussian_filter(rng.normal(size=(height, 1)), (6, 0))
    picture = mean + 30 * (speckle - speckle.mean()) / speckle.std() + 20 * layers / layers.std()
    return np.repeat(picture.clip(0, 255).astype(np.uint8)[..., None], 3, axis=2)


def write(pixels: np.ndarray, text: str, at: tuple[int, int], ink=(230, 230, 230), size: int = 16) -> np.ndarray:
    image = Image.fromarray(pixels)
    ImageDraw.Draw(image).text(at, text, fill=ink, font=ImageFont.load_default(size))
    return np.asarray(image)


def cross(pixels: np.ndarray, x: int, y: int, *, arm: int = 6, thick: int = 2, oblique=False, ink=230) -> np.ndarray:
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    ends = [((-arm, 0), (arm, 0)), ((0, -arm), (0, arm))]
    if oblique:
        ends = [((-arm, -arm), (arm, arm)), ((-arm, arm), (arm, -arm))]
    for (x0, y0), (x1, y1) in ends:
        draw.line((x + x0, y + y0, x + x1, y + y1), fill=(ink,) * 3, width=thick)
    return np.asarray(image)
