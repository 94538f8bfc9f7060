"""Mixup and cutmix of a batch that may come in portions, or over several processes."""

import torch
from timm.data.mixup import Mixup as TimmMixup
from timm.data.mixup import mixup_target

from usvit.config.views import MixConfig
from usvit.data.transforms import seeded
from usvit.errors import UsvitError


class Mixup:
    """Mixes images and labels with those of their neighbours, using timm, for DeiT and its successors.

        x <- lam x + (1 - lam) x'                        (mixup: Zhang et al. 2018; lam ~ Beta(alpha, alpha))
        x <- x, with a box of area 1 - lam from x'       (cutmix: Yun et al. 2019; lam is corrected to the box)
        y <- lam y + (1 - lam) y'

    One lam and one box for the batch are drawn from its seed. timm mixes image i of n with image n - 1 - i; here, 2k
    and 2k + 1 are mixed. For shuffled images both are equivalent, and any even portion is mixed as in the whole batch.
    With repeated augmentation the views of an image have the same partner (``docs/reference/recipes.md``).

    Args:
        config: strengths and probabilities. If both strengths are 0, nothing is mixed.
        n_classes: K.
        label_smoothing: share of each label that is spread evenly over all classes.
    """

    def __init__(self, config: MixConfig, n_classes: int, label_smoothing: float):
        self.n_classes, self.label_smoothing = n_classes, label_smoothing
        self._mixup = TimmMixup(
            mixup_alpha=config.mixup,
            cutmix_alpha=config.cutmix,
            prob=config.probability,
            switch_prob=config.switch,
            mode="batch",
            label_smoothing=label_smoothing,
            num_classes=n_classes,
        )

    @property
    def on(self) -> bool:
        """Return whether images are mixed at all."""
        return self._mixup.mixup_alpha > 0 or self._mixup.cutmix_alpha > 0

    def __call__(self, images: torch.Tensor, targets: torch.Tensor, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Mix the images of a batch or of a portion of it.

        Args:
            images: (B, 3, S, S) float; B is even if images are mixed.
            targets: (B,) int64 in [0, K).
            seed: seed of the whole batch. numpy's global generator keeps its state.

        Returns:
            (B, 3, S, S) float images, and (B, K) float32 labels whose rows sum to 1.

        Raises:
            UsvitError: the number of images to mix is odd.
        """
        if not self.on:
            return images, mixup_target(targets, self.n_classes, 1.0, self.label_smoothing)
        if len(images) % 2:
            raise UsvitError(
                f"mixup and cutmix mix pairs of images, but a portion of the batch has {len(images)} images. Set "
                "train.micro_batch, and train.batch_size over the number of processes, to even numbers."
            )
        # timm mixes i with n - 1 - i: move neighbours to these places, and back.
        evens = torch.arange(0, len(images), 2, device=images.device)
        order = torch.cat([evens, evens.flip(0) + 1])
        back = order.argsort()
        with seeded(seed):
            mixed, labels = self._mixup(images[order], targets[order])
        return mixed[back], labels[back]
