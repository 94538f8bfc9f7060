"""Grafit: representations that are finer than the labels from which they are learnt.

    g      = l2(P(f(x))),   f: the network without its classifier, P: projector
    L_inst = - sum_{i != j} cos(q(g(t_i x)), g_xi(t_j x)) / (T (T - 1))              (2.1)  T views of one image
    p_ij  ~ exp(cos(g(x_i), m_j) / sigma),  sum_{j != i} p_ij = 1                    (2.2)  m: memory of all images
    L_knn  = - log sum_{j != i, y_j = y_i} p_ij                                      (2.3)  y: coarse labels
    L      = L_knn + L_inst                                                          (2.4)

The target network xi is a moving average of theta; m_i becomes l2(1/2 (m_i + g(x_i))) when image i was in a batch.
Keys come from earlier steps, so neither portions nor processes change L_knn. Batch normalization, in the projector and
in convolutional networks, depends on the portions, as usual.

Source: Touvron (2022), PhD thesis, section 2.3.1; Touvron et al. (2021), Grafit, ICCV. Not stated there and chosen
here: the predictor has the projector's architecture (BYOL, Grill et al. 2020, section 3.2); the target network runs in
evaluation mode, with theta's running statistics; the memory starts empty, and images not seen yet are not neighbours;
L_knn uses the first view; an image that is alone in its class has L_knn = 0.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from usvit.config.pretrain import GrafitConfig
from usvit.data.loading import Batch
from usvit.errors import UsvitError
from usvit.models import head_parts
from usvit.pretraining.counter_rng import new_weights, random_bits
from usvit.pretraining.task import PretrainingTask, TaskContext
from usvit.training import gather_rows

UNSEEN = -2
"""Label of a memory entry whose image was in no batch yet; -1 marks images without a label."""
NEIGHBOURS = 20
"""k of the validation figures, the middle of the thesis's choices (section 2.4.2)."""
PROJECTOR = "projector"
_NEVER = -1e30  # logarithm of probability zero, with gradient zero instead of NaN


class Embedding(nn.Module):
    """The embedding g: the network without its classifier, and the projector.

    Args:
        network: a network of the zoo. Its classifier is frozen.
        config: settings of the projector.
    """

    def __init__(self, network: nn.Module, config: GrafitConfig):
        super().__init__()
        for part in head_parts(network):
            part.requires_grad_(False)
        self.network = network
        n_features = _n_features(network)
        self.projector: nn.Module = (
            nn.Linear(n_features, config.width)
            if config.projector == "linear"
            else mlp(n_features, config.hidden, config.width)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, 3, S, S) normalized images to (B, width) float32 vectors of length one."""
        return normalize(self.projector(_features(self.network, images)).float(), dim=1)


class GrafitNetwork(nn.Module):
    """The trained modules, the target network and the memory.

    Args:
        network: a network of the zoo.
        config: settings of Grafit.
        n_images: entries of the memory.
    """

    memory: Tensor
    labels: Tensor

    def __init__(self, network: nn.Module, config: GrafitConfig, n_images: int):
        super().__init__()
        self.embedding = Embedding(network, config)
        self.predictor = self.target = None
        if config.instance > 0:
            self.predictor = mlp(config.width, config.hidden, config.width)
            self.target = deepcopy(self.embedding).requires_grad_(False)
        self.register_buffer("memory", torch.zeros(n_images, config.width))
        self.register_buffer("labels", torch.full((n_images,), UNSEEN))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Map (B, 3, S, S) to (B, width) embeddings g, predictions q(g), and target embeddings without gradient.

        In evaluation mode, predictions and targets are None.
        """
        embedded = self.embedding(images)
        if not self.training or self.predictor is None or self.target is None:
            return embedded, None, None
        with torch.no_grad():
            target = self.target(images)
        return embedded, self.predictor(embedded), target

    def no_weight_decay(self) -> set[str]:
        """Return the names of the network's parameters without weight decay."""
        own: Any = getattr(self.embedding.network, "no_weight_decay", set)
        return {f"embedding.network.{name}" for name in own()}


class Grafit(PretrainingTask):
    """L_knn and L_inst, weighted by ``grafit.knn`` and ``grafit.instance``.

    Args:
        context: configuration, data and device of the training.
        network: a network of the zoo.

    Raises:
        UsvitError: too few views for an instance loss, or no loss at all.
    """

    module: GrafitNetwork

    def __init__(self, context: TaskContext, network: nn.Module):
        self._config, self._views = context.config.grafit, context.config.views.count
        _check(self._config, self._views)
        self._inputs = context.inputs
        with new_weights(context.config.seed, "grafit"):
            self.module = GrafitNetwork(network, self._config, context.n_images)
        self._seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def loss(self, module: nn.Module, portion: Batch, step: int) -> Tensor:
        images, targets, index = portion["images"], portion["targets"], portion["index"]
        views = images if images.ndim == 5 else images[:, None]
        flat = self._inputs(views.flatten(0, 1), view_seeds(portion["seeds"], views.shape[1]).flatten())
        embedded, predicted, target = module(flat)
        first = embedded.unflatten(0, views.shape[:2])[:, 0]
        self._seen.append((first.detach(), targets, index))
        loss = first.new_zeros(())
        if self._config.knn > 0:
            losses = knn_loss(first, targets, index, self.module.memory, self.module.labels, self._config.sigma)
            loss = loss + self._config.knn * losses.sum()
        if predicted is not None and target is not None:
            losses = instance_loss(predicted.unflatten(0, views.shape[:2]), target.unflatten(0, views.shape[:2]))
            loss = loss + self._config.instance * losses.sum()
        return loss

    @torch.no_grad()
    def on_step_end(self, step: int) -> None:
        """Update the target network and the memory."""
        module, tau = self.module, self._config.target_decay
        if module.target is not None:
            for mean, new in zip(module.target.parameters(), module.embedding.parameters(), strict=True):
                mean.lerp_(new.to(mean), 1 - tau)
            for old, buffer in zip(module.target.buffers(), module.embedding.buffers(), strict=True):
                old.copy_(buffer)
        if self._seen:
            embedded, targets, index = (torch.cat(parts) for parts in zip(*self._seen, strict=True))
            self._seen = []
            remember(module.memory, module.labels, *(gather_rows(rows) for rows in (embedded, targets, index)))

    def network(self, module: nn.Module) -> nn.Module:
        kept: nn.Module = module.embedding.network  # type: ignore[union-attr, assignment]
        return kept

    def extra_modules(self) -> dict[str, nn.Module]:
        """Return the projector, which the run saves in ``projector.safetensors``."""
        return {PROJECTOR: self.module.embedding.projector}

    def evaluate(self, module: nn.Module, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute L_knn against the memory, and the accuracy of the coarse class of the nearest neighbours."""
        embedded, _, _ = module(images)
        memory, labels, sigma = self.module.memory, self.module.labels, self._config.sigma
        nobody = torch.full_like(targets, -1)
        losses = knn_loss(embedded, targets, nobody, memory, labels, sigma)
        found = nearest_class(embedded, memory, labels, sigma)
        return {"val_loss": losses.sum(), "val_accuracy": (found == targets).sum()}


def make(context: TaskContext, network: nn.Module) -> PretrainingTask:
    """Make the task (``usvit.pretraining.task.MakeTask``)."""
    return Grafit(context, network)


def mlp(before: int, hidden: int, after: int) -> nn.Sequential:
    """Make an MLP from (B, before) to (B, after): linear, batch normalization, ReLU, linear.

    With a ResNet-50's 2048 features, 4096 and 256, the network has the thesis's 32.9 M parameters (Table 2.4).
    """
    return nn.Sequential(
        nn.Linear(before, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, after)
    )


def knn_loss(embedded: Tensor, targets: Tensor, index: Tensor, memory: Tensor, labels: Tensor, sigma: float) -> Tensor:
    """Compute L_knn of each image (eq. 2.2-2.3).

    Args:
        embedded: (B, D), vectors of length one.
        targets: (B,) int64, coarse labels.
        index: (B,) int64, each image's entry of the memory, which is not its neighbour; -1 if it has none.
        memory: (N, D); entries of images seen before have length one.
        labels: (N,) int64; ``UNSEEN`` entries are not neighbours.
        sigma: temperature.

    Returns:
        (B,) losses >= 0; 0 if no neighbour has the image's class.
    """
    scores = embedded @ memory.T / sigma
    others = (labels != UNSEEN)[None] & (torch.arange(len(memory), device=index.device)[None] != index[:, None])
    same = others & (labels[None] == targets[:, None])
    all_others = scores.masked_fill(~others, _NEVER).logsumexp(1)
    right = scores.masked_fill(~same, _NEVER).logsumexp(1)
    return torch.where(same.any(1), all_others - right, torch.zeros_like(right))


def instance_loss(predicted: Tensor, target: Tensor) -> Tensor:
    """Compute L_inst of each image (eq. 2.1).

    Args:
        predicted: (B, T, D), q(g(t_i x)) of any length.
        target: (B, T, D), g_xi(t_j x) of any length.

    Returns:
        (B,) losses in [-1, 1]; T >= 2 views are needed.
    """
    cosines = normalize(predicted, dim=2) @ normalize(target, dim=2).transpose(1, 2)
    n_views = cosines.shape[1]
    same_view = cosines.diagonal(dim1=1, dim2=2).sum(1)
    return -(cosines.sum((1, 2)) - same_view) / (n_views * (n_views - 1))


def remember(memory: Tensor, labels: Tensor, embedded: Tensor, targets: Tensor, index: Tensor) -> None:
    """Move memory entries halfway to the batch's embeddings and normalize them; new entries are the embeddings.

    An image that is in the batch several times counts once, with the mean of its embeddings.

    Args:
        memory: (N, D), changed in place.
        labels: (N,) int64, changed in place.
        embedded, targets, index: (B, D), (B,) and (B,), for the whole batch.
    """
    rows, inverse, count = index.unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(rows), memory.shape[1], dtype=torch.float64, device=memory.device)
    mean = (sums.index_add(0, inverse, embedded.double()) / count[:, None]).to(memory)
    memory[rows] = normalize((memory[rows] + mean) / 2, dim=1)
    labels[index] = targets


def nearest_class(embedded: Tensor, memory: Tensor, labels: Tensor, sigma: float, k: int = NEIGHBOURS) -> Tensor:
    """Return (B,) int64, the class with the largest p_kNN (eq. 2.6) among the images seen; -1 if there are none."""
    seen = labels != UNSEEN
    k = min(k, int(seen.sum()))
    if k == 0:
        return torch.full((len(embedded),), -1, device=labels.device)
    near = (embedded @ memory.T).masked_fill(~seen, -torch.inf).topk(k)
    weight = ((near.values - 1) / sigma).exp()
    classes = labels[near.indices].clamp(min=0)
    votes = weight.new_zeros(len(embedded), int(labels.max()) + 1 if int(labels.max()) >= 0 else 1)
    return votes.scatter_add(1, classes, weight).argmax(1)


def view_seeds(seeds: Tensor, count: int) -> Tensor:
    """Map (B,) int64 seeds to (B, T), one per view, for augmentation on the device; the first is unchanged."""
    return torch.cat([seeds[:, None], random_bits(seeds, count - 1, "grafit/views")], dim=1)


def _check(config: GrafitConfig, views: int) -> None:
    if config.instance == 0 and config.knn == 0:
        raise UsvitError("grafit.instance and grafit.knn are both 0, so there is no loss. Set one of them.")
    if config.instance > 0 and views < 2:
        raise UsvitError(
            "The instance loss compares views of one image, but views.count is 1. Set views.count=2 or more (the "
            "thesis uses 4, and 8 for CIFAR), or grafit.instance=0."
        )


def _features(network: nn.Module, images: Tensor) -> Tensor:
    """Compute (B, D), the input of the classifier."""
    trunk: Any = network
    features: Tensor = trunk.forward_head(trunk.forward_features(images), pre_logits=True)
    return features.mean((2, 3)) if features.ndim == 4 else features


def _n_features(network: nn.Module) -> int:
    config: Any = getattr(network, "pretrained_cfg", None) or {}
    side = config.get("input_size", (3, 224, 224))[-1]
    embed: Any = getattr(network, "patch_embed", None) or getattr(network, "stem", None)
    side = getattr(embed, "img_size", None) or (side, side)
    training = network.training
    network.eval()
    with torch.no_grad():
        width = _features(network, torch.zeros(1, 3, *side)).shape[1]
    network.train(training)
    return width
