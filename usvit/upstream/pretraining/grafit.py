"""Grafit: representations that are finer than the labels from which they are learnt.

    g      = l2(P(f(x))),   f: the network without its classifier, P: projector
    L_inst = - sum_{i != j} cos(q(g(t_i x)), g_xi(t_j x)) / (T (T - 1))              (2.1)  T views of one image
    p_ij  ~ exp(cos(g(x_i), m_j) / sigma),  sum_{j != i} p_ij = 1                    (2.2)  m: memory of all images
    L_knn  = - log sum_{j != i, y_j = y_i} p_ij                                      (2.3)  y: coarse labels
    L      = L_knn + L_inst                                                          (2.4)

The target network xi is a moving average of theta; m_i becomes 1/2 (m_i + g(x_i)) when image i was in a batch, and
eq. 2.2 reads its direction. Keys come from earlier steps, so neither portions nor processes change L_knn. Batch
normalization, in the projector and in convolutional networks, depends on the portions, as usual.

Two other losses are those of the thesis's ablations: L_CE, the cross-entropy of the network's own classifier on coarse
labels (Table 2.7, "L_CE + L_inst"; section 2.2), and L_Triplet between views of a batch (section 2.2). The negatives of
a triplet are the other images of the portion.

Source: Touvron (2022), PhD thesis, sections 2.2 and 2.3.1; Touvron et al. (2021), Grafit, ICCV. Not stated there and
chosen here: the predictor has the projector's architecture (BYOL, Grill et al. 2020, section 3.2); the target network
runs in evaluation mode, with theta's running statistics; the memory starts empty, an image's first embedding is its
entry, and images not seen yet are not neighbours; L_knn and L_CE use the first view; an image that is alone in its
class has L_knn = 0.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from usvit.data.loading import Batch
from usvit.errors import UsvitError
from usvit.models import head_parts
from usvit.training import gather_rows
from usvit.upstream.config.pretrain import GrafitConfig
from usvit.upstream.pretraining.counter_rng import new_weights, view_seeds
from usvit.upstream.pretraining.grafit_losses import UNSEEN, instance_loss, knn_loss, triplet_loss
from usvit.upstream.pretraining.task import PretrainingTask, TaskContext

NEIGHBOURS = 20
"""k of the validation figures, the middle of the thesis's choices (section 2.4.2)."""
PROJECTOR = "projector"


class Embedding(nn.Module):
    """The embedding g: the network without its classifier, and the projector.

    Args:
        network: a network of the zoo. Its classifier is frozen, unless L_CE trains it.
        config: settings of the projector.
    """

    def __init__(self, network: nn.Module, config: GrafitConfig):
        super().__init__()
        self.classifies = config.cross_entropy > 0
        for part in head_parts(network):
            part.requires_grad_(self.classifies)
        self.network = network
        n_features = _n_features(network)
        self.width = n_features if config.projector == "none" else config.width
        self.projector = _projector(config, n_features)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, 3, S, S) normalized images to (B, width) float32 vectors of length one."""
        return self._project(_maps(self.network, images))

    def with_logits(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the embeddings, and the (B, K) logits of the network's classifier if L_CE trains it."""
        trunk: Any = self.network
        maps = _maps(trunk, images)
        return self._project(maps), trunk.forward_head(maps) if self.classifies else None

    def _project(self, maps: Tensor) -> Tensor:
        return normalize(self.projector(_features(self.network, maps)).float(), dim=1)


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
        width = self.embedding.width
        if config.instance > 0:
            self.predictor = mlp(width, config.hidden, width)
            self.target = deepcopy(self.embedding).requires_grad_(False)
        self.register_buffer("memory", torch.zeros(n_images, width))
        self.register_buffer("labels", torch.full((n_images,), UNSEEN))
        self._of_length_one = config.memory == "normalized"

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Map (B, 3, S, S) to (B, width) embeddings g, predictions q(g), targets without gradient, and logits.

        In evaluation mode, predictions and targets are None. Logits (B, K) are None unless L_CE is trained.
        """
        embedded, logits = self.embedding.with_logits(images)
        if not self.training or self.predictor is None or self.target is None:
            return embedded, None, None, logits
        with torch.no_grad():
            target = self.target(images)
        return embedded, self.predictor(embedded), target, logits

    def keys(self) -> Tensor:
        """Return the memory with entries of length one, (N, width); entries of images not seen yet are zero."""
        return self.memory if self._of_length_one else normalize(self.memory, dim=1)

    def remember(self, embedded: Tensor, targets: Tensor, index: Tensor) -> None:
        """Update the memory with the (B, width) embeddings of a whole batch, their labels and entries, each (B,)."""
        remember(self.memory, self.labels, embedded, targets, index, normalized=self._of_length_one)


class Grafit(PretrainingTask):
    """L_knn, L_inst, L_CE and L_Triplet, weighted by ``grafit.knn``, ``instance``, ``cross_entropy`` and ``triplet``.

    Args:
        context: configuration, data and device of the training.
        network: a network of the zoo.

    Raises:
        UsvitError: too few views or classes for a loss, or no loss that trains an embedding.
    """

    module: GrafitNetwork

    def __init__(self, context: TaskContext, network: nn.Module):
        self._config, self._views = context.config.grafit, context.config.views.count
        _check(self._config, self._views, context)
        self._inputs = context.inputs
        with new_weights(context.config.seed, "grafit"):
            self.module = GrafitNetwork(network, self._config, context.n_images)
        self._seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def loss(self, module: nn.Module, portion: Batch, step: int) -> Tensor:
        images, targets, index = portion["images"], portion["targets"], portion["index"]
        views = images if images.ndim == 5 else images[:, None]
        flat = self._inputs(views.flatten(0, 1), view_seeds(portion["seeds"], views.shape[1]).flatten())
        embedded, predicted, target, logits = module(flat)
        embedded = embedded.unflatten(0, views.shape[:2])
        first = embedded[:, 0]
        self._seen.append((first.detach(), targets, index))
        loss = first.new_zeros(())
        if self._config.knn > 0:
            losses = knn_loss(first, targets, index, self.module.keys(), self.module.labels, self._config.sigma)
            loss = loss + self._config.knn * losses.sum()
        if predicted is not None and target is not None:
            losses = instance_loss(predicted.unflatten(0, views.shape[:2]), target.unflatten(0, views.shape[:2]))
            loss = loss + self._config.instance * losses.sum()
        if logits is not None:
            of_first = logits.unflatten(0, views.shape[:2])[:, 0].float()
            loss = loss + self._config.cross_entropy * cross_entropy(of_first, targets, reduction="sum")
        if self._config.triplet > 0:
            loss = loss + self._config.triplet * triplet_loss(embedded, self._config.margin).sum()
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
            module.remember(*(gather_rows(rows) for rows in (embedded, targets, index)))

    def network(self, module: nn.Module) -> nn.Module:
        kept: nn.Module = module.embedding.network  # type: ignore[union-attr, assignment]
        return kept

    def extra_modules(self) -> dict[str, nn.Module]:
        """Return the projector, if there is one, which the run saves in ``projector.safetensors``."""
        return {} if self._config.projector == "none" else {PROJECTOR: self.module.embedding.projector}

    def evaluate(self, module: nn.Module, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute L_knn against the memory, and the accuracy of the coarse class of the nearest neighbours."""
        embedded = module(images)[0]
        memory, labels, sigma = self.module.keys(), self.module.labels, self._config.sigma
        nobody = torch.full_like(targets, -1)
        losses = knn_loss(embedded, targets, nobody, memory, labels, sigma)
        found = nearest_class(embedded, memory, labels, sigma)
        return {"val_loss": losses.sum(), "val_accuracy": (found == targets).sum()}


def make(context: TaskContext, network: nn.Module) -> PretrainingTask:
    """Make the task (``usvit.upstream.pretraining.task.MakeTask``)."""
    return Grafit(context, network)


def mlp(before: int, hidden: int, after: int) -> nn.Sequential:
    """Make an MLP from (B, before) to (B, after): linear, batch normalization, ReLU, linear.

    With a ResNet-50's 2048 features, 4096 and 256, the network has the thesis's 32.9 M parameters (Table 2.4).
    """
    return nn.Sequential(
        nn.Linear(before, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, after)
    )


def remember(
    memory: Tensor, labels: Tensor, embedded: Tensor, targets: Tensor, index: Tensor, *, normalized: bool = False
) -> None:
    """Move memory entries halfway to the batch's embeddings (section 2.3.1); new entries are the embeddings.

    An image that is in the batch several times counts once, with the mean of its embeddings.

    Args:
        memory: (N, D), changed in place.
        labels: (N,) int64, changed in place.
        embedded, targets, index: (B, D), (B,) and (B,), for the whole batch.
        normalized: Scale the entries to length one afterwards (``grafit.memory``).
    """
    rows, inverse, count = index.unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(rows), memory.shape[1], dtype=torch.float64, device=memory.device)
    mean = (sums.index_add(0, inverse, embedded.double()) / count[:, None]).to(memory)
    half = (memory[rows] + mean) / 2
    if normalized:
        memory[rows] = normalize(half, dim=1)
    else:
        memory[rows] = torch.where((labels[rows] == UNSEEN)[:, None], mean, half)
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


def _check(config: GrafitConfig, views: int, context: TaskContext) -> None:
    if config.instance == 0 and config.knn == 0 and config.triplet == 0:
        raise UsvitError(
            "grafit.instance, grafit.knn and grafit.triplet are all 0, so there is no loss of the embedding. Set one "
            "of them; for the cross-entropy alone, set objective=supervised."
        )
    if config.cross_entropy > 0 and context.n_classes < 2:
        raise UsvitError(
            f"grafit.cross_entropy needs labels of two or more classes, and {context.config.source.name} has "
            f"{context.n_classes}. Set it to 0, or choose another source or source.coarse."
        )
    if config.triplet > 0 and (views < 2 or context.config.train.micro_batch == 1):
        raise UsvitError(
            "The triplet loss needs two views of an image and another image: set views.count=2 or more, and "
            "train.micro_batch to 2 or more."
        )
    if config.instance > 0 and views < 2:
        raise UsvitError(
            "The instance loss compares views of one image, but views.count is 1. Set views.count=2 or more (the "
            "thesis uses 4, and 8 for CIFAR), or grafit.instance=0."
        )


def _projector(config: GrafitConfig, n_features: int) -> nn.Module:
    if config.projector == "none":
        return nn.Identity()
    if config.projector == "linear":
        return nn.Linear(n_features, config.width)
    return mlp(n_features, config.hidden, config.width)


def _maps(network: nn.Module, images: Tensor) -> Tensor:
    """Compute the output of the last layer, before pooling and classifier."""
    trunk: Any = network
    maps: Tensor = trunk.forward_features(images)
    return maps


def _features(network: nn.Module, maps: Tensor) -> Tensor:
    """Compute (B, D), the input of the classifier."""
    trunk: Any = network
    features: Tensor = trunk.forward_head(maps, pre_logits=True)
    return features.mean((2, 3)) if features.ndim == 4 else features


def _n_features(network: nn.Module) -> int:
    config: Any = getattr(network, "pretrained_cfg", None) or {}
    side = config.get("input_size", (3, 224, 224))[-1]
    embed: Any = getattr(network, "patch_embed", None) or getattr(network, "stem", None)
    side = getattr(embed, "img_size", None) or (side, side)
    training = network.training
    network.eval()
    with torch.no_grad():
        width = _features(network, _maps(network, torch.zeros(1, 3, *side))).shape[1]
    network.train(training)
    return width
