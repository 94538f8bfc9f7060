import math
from dataclasses import replace

import pytest
import timm
import torch
from torch import nn

from tests.upstream.pretraining.toy import Normalised, plan, tiny_vit
from usvit.data.transforms.views.rng import number_table
from usvit.errors import UsvitError
from usvit.models.trainable import train_mode
from usvit.seeding import derive_seed
from usvit.upstream.config.pretrain import GrafitConfig
from usvit.upstream.pretraining.counter_rng import view_seeds
from usvit.upstream.pretraining.grafit import Embedding, GrafitNetwork, make, mlp, nearest_class, remember
from usvit.upstream.pretraining.grafit_losses import UNSEEN, instance_loss, knn_loss, triplet_loss

SMALL = {"width": 6, "hidden": 10}


def grafit(views=2, network=None, **settings):
    context = plan(objective="grafit", grafit=SMALL | settings, views={"count": views})
    return make(replace(context, n_classes=3), network or tiny_vit())


def rows(size=4, views=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (size, views, 32, 32, 3) if views > 1 else (size, 32, 32, 3)
    return {
        "images": torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8),
        "targets": torch.randint(0, 2, (size,), generator=generator),
        "seeds": torch.randint(0, 2**62, (size,), generator=generator),
        "index": torch.randperm(100, generator=generator)[:size],
    }


def filled(task, seed=3):
    """A memory as after an epoch."""
    generator = torch.Generator().manual_seed(seed)
    memory = torch.randn(task.module.memory.shape, generator=generator)
    task.module.memory.copy_(nn.functional.normalize(memory, dim=1))
    task.module.labels.copy_(torch.randint(0, 2, (100,), generator=generator))
    return task


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def test_the_instance_loss_is_equation_2_1():
    predicted, target = torch.randn(3, 4, 5), torch.randn(3, 4, 5)
    got = instance_loss(predicted, target)
    for image in range(3):
        total = 0.0
        for i in range(4):
            for j in range(4):
                if i != j:
                    total += cosine(predicted[image, i].tolist(), target[image, j].tolist())
        assert got[image].item() == pytest.approx(-total / (4 * 3), rel=1e-5)


def test_the_knn_loss_is_equations_2_2_and_2_3():
    memory = nn.functional.normalize(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, UNSEEN, 3])
    embedded = nn.functional.normalize(torch.randn(4, 4, generator=torch.Generator().manual_seed(1)), dim=1)
    targets, index, sigma = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 4, 5, 8]), 0.2
    got = knn_loss(embedded, targets, index, memory, labels, sigma)
    for i in range(3):
        p = {
            j: math.exp(cosine(embedded[i].tolist(), memory[j].tolist()) / sigma)
            for j in range(9)
            if j != index[i] and labels[j] != UNSEEN
        }
        right = sum(weight for j, weight in p.items() if labels[j] == targets[i])
        assert got[i].item() == pytest.approx(-math.log(right / sum(p.values())), rel=1e-4)
    assert got[3] == 0  # it is alone in its class


def test_an_image_without_neighbours_has_no_gradient_and_no_nan():
    embedded = torch.randn(2, 4, requires_grad=True)
    memory, labels = torch.zeros(5, 4), torch.full((5,), UNSEEN)
    loss = knn_loss(embedded, torch.tensor([0, 1]), torch.tensor([0, 1]), memory, labels, 0.05).sum()
    loss.backward()
    assert loss == 0 and torch.equal(embedded.grad, torch.zeros(2, 4))


@pytest.mark.parametrize("normalized", [False, True])
def test_the_memory_goes_half_the_way_to_the_batch(normalized):
    """Section 2.3.1: m <- (m + g) / 2, without another division by the length."""
    memory = nn.functional.normalize(torch.randn(4, 3), dim=1)
    memory[3] = 0
    labels, before = torch.tensor([0, 1, 0, UNSEEN]), memory.clone()
    embedded = nn.functional.normalize(torch.randn(3, 3), dim=1)
    remember(memory, labels, embedded, torch.tensor([0, 1, 1]), torch.tensor([2, 3, 1]), normalized=normalized)
    for entry, row in ((2, 0), (1, 2)):
        half = [(old + new) / 2 for old, new in zip(before[entry].tolist(), embedded[row].tolist(), strict=True)]
        length = math.sqrt(sum(x * x for x in half)) if normalized else 1.0
        assert memory[entry].tolist() == pytest.approx([x / length for x in half], abs=1e-6)
    torch.testing.assert_close(memory[3], embedded[1])  # new: as it is
    torch.testing.assert_close(memory[0], before[0])
    assert labels.tolist() == [0, 1, 0, 1]


def test_the_memory_of_a_training_is_the_thesis_formula_over_many_steps():
    task, expected = grafit(projector="linear"), {}
    for step in range(3):
        given = rows(seed=step) | {"index": torch.tensor([0, 1, 2, 3])}
        task.loss(task.module.train(), given, step)
        embedded = task._seen[0][0]
        for image, new in enumerate(embedded.tolist()):
            old = expected.get(image)
            expected[image] = new if old is None else [(a + b) / 2 for a, b in zip(old, new, strict=True)]
        task.on_step_end(step)
    for image, entry in expected.items():
        assert task.module.memory[image].tolist() == pytest.approx(entry, abs=1e-6)
    assert (task.module.memory[:4].norm(dim=1) < 0.999).any()  # the embeddings differ from step to step
    torch.testing.assert_close(task.module.keys()[:4].norm(dim=1), torch.ones(4))
    torch.testing.assert_close(grafit(memory="normalized").module.keys(), torch.zeros(100, 6))


def test_the_neighbours_of_a_long_and_a_short_entry_are_weighted_alike():
    """Eq. 2.2 has the cosine, so the length of an entry does not count."""
    one, other, given = filled(grafit()), filled(grafit()), rows()
    other.module.memory.mul_(torch.linspace(0.2, 1, 100)[:, None])
    torch.testing.assert_close(
        one.loss(one.module.train(), given, 0), other.loss(other.module.train(), given, 0), rtol=1e-5, atol=1e-5
    )


def test_an_image_twice_in_a_batch_counts_once_in_any_order():
    embedded, index = torch.randn(3, 4), torch.tensor([1, 0, 1])
    one, other = torch.zeros(2, 4), torch.zeros(2, 4)
    remember(one, torch.full((2,), UNSEEN), embedded, torch.zeros(3, dtype=torch.int64), index)
    remember(other, torch.full((2,), UNSEEN), embedded.flip(0), torch.zeros(3, dtype=torch.int64), index.flip(0))
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(one[1], embedded[[0, 2]].mean(0))


def test_the_total_is_both_losses_with_the_first_view_for_the_neighbours():
    task, given = filled(grafit(views=3)), rows(views=3)
    module = task.module.train()
    got = task.loss(module, given, 0)
    embedded, predicted, target, _ = module(Normalised()(given["images"].flatten(0, 1), None))
    first = embedded.reshape(4, 3, 6)[:, 0]
    near = knn_loss(first, given["targets"], given["index"], module.memory, module.labels, 0.05)
    same = instance_loss(predicted.reshape(4, 3, 6), target.reshape(4, 3, 6))
    torch.testing.assert_close(got, (near + same).sum())
    weighted = filled(grafit(views=3, instance=0.5, knn=2.0))
    torch.testing.assert_close(weighted.loss(weighted.module.train(), given, 0), (2 * near + 0.5 * same).sum())


def test_the_triplet_loss_is_the_mean_over_the_triplets_that_violate_the_margin():
    embedded = nn.functional.normalize(torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(2)), dim=2)
    got, margin = triplet_loss(embedded, 0.4), 0.4
    points, kept, all_of_them = embedded.tolist(), 0, 0
    for i in range(4):
        losses = []
        for a in range(3):
            for p in set(range(3)) - {a}:
                for j in set(range(4)) - {i}:
                    for n in range(3):
                        near, far = (
                            math.dist(points[i][a], points[i][p]) ** 2,
                            math.dist(points[i][a], points[j][n]) ** 2,
                        )
                        losses.append(max(0.0, near - far + margin))
        violating = [loss for loss in losses if loss > 0]
        kept, all_of_them = kept + len(violating), all_of_them + len(losses)
        assert got[i].item() == pytest.approx(sum(violating) / len(violating), rel=1e-4)
    assert 0 < kept < all_of_them


def test_views_that_are_far_from_other_images_have_no_triplet_loss_and_no_nan():
    embedded = torch.eye(4)[:, None].repeat(1, 2, 1).requires_grad_()
    loss = triplet_loss(embedded, 0.2)
    loss.sum().backward()
    assert torch.equal(loss, torch.zeros(4)) and torch.equal(embedded.grad, torch.zeros(4, 2, 4))


def test_cross_entropy_is_that_of_the_first_view_by_the_networks_own_classifier():
    """Table 2.7, L_CE + L_inst; "for the supervised loss we use one data-augmentation" (section 2.5.1)."""
    network = tiny_vit()
    task, given = grafit(views=2, network=network, knn=0.0, instance=1.0, cross_entropy=0.5), rows(views=2)
    module = task.module.train()
    got = task.loss(module, given, 0)
    flat = Normalised()(given["images"].flatten(0, 1), None)
    _, predicted, target, _ = module(flat)
    same = instance_loss(predicted.reshape(4, 2, 6), target.reshape(4, 2, 6)).sum()
    log_prob = network(Normalised()(given["images"][:, 0], None)).log_softmax(1)
    ce = -sum(log_prob[image, label] for image, label in enumerate(given["targets"].tolist()))
    torch.testing.assert_close(got, same + 0.5 * ce)
    task.loss(module, given, 0).backward()
    assert network.head.weight.grad.abs().sum() > 0


def test_the_sum_of_cross_entropy_and_triplets_trains_the_features_themselves():
    """Section 2.2: no projector, and no memory in the loss."""
    settings = {"knn": 0.0, "instance": 0.0, "triplet": 2.0, "cross_entropy": 1.0, "projector": "none"}
    network, given = tiny_vit(), rows(views=2)
    task = grafit(network=network, **settings)
    assert task.module.memory.shape == (100, 16) and task.module.target is None
    got = task.loss(task.module.train(), given, 0)
    flat = Normalised()(given["images"].flatten(0, 1), None)
    features = network.forward_head(network.forward_features(flat), pre_logits=True)
    triplets = triplet_loss(nn.functional.normalize(features, dim=1).reshape(4, 2, 16), 0.2).sum()
    ce = nn.functional.cross_entropy(network(flat).reshape(4, 2, 3)[:, 0], given["targets"], reduction="sum")
    torch.testing.assert_close(got, 2 * triplets + ce)
    got.backward()
    for name, parameter in task.module.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    assert task.extra_modules() == {}


def test_snca_plus_needs_one_view_and_no_target_network():
    task = filled(grafit(views=1, instance=0.0))
    assert task.module.target is None and task.module.predictor is None
    assert task.loss(task.module.train(), rows(views=1), 0) > 0


def test_the_target_network_follows_as_a_running_mean_and_has_no_gradient():
    task = filled(grafit(target_decay=0.9))
    module = task.module
    train_mode(module)
    assert not module.target.training and not any(one.requires_grad for one in module.target.parameters())
    old = {name: value.clone() for name, value in module.target.named_parameters()}
    optimizer = torch.optim.SGD([one for one in module.parameters() if one.requires_grad], lr=0.1)
    task.loss(module, rows(), 0).backward()
    optimizer.step()
    task.on_step_end(0)
    for name, new in module.embedding.named_parameters():
        torch.testing.assert_close(dict(module.target.named_parameters())[name], 0.9 * old[name] + 0.1 * new)
    for mean, new in zip(module.target.buffers(), module.embedding.buffers(), strict=True):
        assert torch.equal(mean, new)


def test_every_parameter_that_trains_gets_a_gradient():
    task = filled(grafit())
    task.loss(task.module.train(), rows(), 0).backward()
    for name, parameter in task.module.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    trained = {name for name, one in task.module.named_parameters() if one.requires_grad}
    assert not any("head" in name or name.startswith("target") for name in trained)


def test_portions_change_nothing_where_there_is_no_batch_normalisation():
    """The linear projector on a ViT has none; the predictor has, so it is put into evaluation."""
    whole, portions, given = (filled(grafit(projector="linear")) for _ in range(2)), None, rows(6)
    whole, portions = whole
    for task in (whole, portions):
        task.module.train().predictor[1].eval()
    (whole.loss(whole.module, given, 0) / 6).backward()
    for start in (0, 2, 4):
        part = {key: value[start : start + 2] for key, value in given.items()}
        (portions.loss(portions.module, part, 0) / 6).backward()
    whole.on_step_end(0)
    portions.on_step_end(0)
    for (name, one), other in zip(whole.module.named_parameters(), portions.module.parameters(), strict=True):
        if one.requires_grad:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5, msg=name)
    torch.testing.assert_close(whole.module.memory, portions.module.memory)
    assert torch.equal(whole.module.labels, portions.module.labels)


def test_what_is_remembered_is_the_batch():
    task, given = grafit(), rows()
    task.loss(task.module.train(), given, 0)
    task.on_step_end(0)
    seen = task.module.labels != UNSEEN
    assert seen.nonzero()[:, 0].tolist() == sorted(given["index"].tolist())
    assert torch.equal(task.module.labels[given["index"]], given["targets"])
    torch.testing.assert_close(task.module.memory[seen].norm(dim=1), torch.ones(4))
    assert (task.module.memory[~seen] == 0).all()


def test_the_state_holds_everything_that_a_killed_run_needs():
    one, given = filled(grafit()), rows()
    one.loss(one.module.train(), given, 0)
    one.on_step_end(0)
    other = grafit()
    other.module.load_state_dict(one.module.state_dict())
    assert torch.equal(one.loss(one.module, rows(seed=5), 1), other.loss(other.module.train(), rows(seed=5), 1))


def test_the_nearest_class_is_that_of_equation_2_6():
    memory = nn.functional.normalize(torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = torch.arange(30) % 4
    labels[7] = UNSEEN
    embedded = nn.functional.normalize(torch.randn(12, 4, generator=torch.Generator().manual_seed(1)), dim=1)
    got = nearest_class(embedded, memory, labels, 0.05, k=5)
    for i in range(12):
        scores = {j: cosine(embedded[i].tolist(), memory[j].tolist()) for j in range(30) if j != 7}
        near = sorted(scores, key=scores.get, reverse=True)[:5]
        votes = [sum(math.exp(scores[j] / 0.05) for j in near if labels[j] == c) for c in range(4)]
        assert got[i] == votes.index(max(votes))


def test_figures_are_of_the_memory_as_it_is():
    task, given = filled(grafit()), rows(views=1)
    images = Normalised()(given["images"], None)
    module = task.module.eval()
    figures = task.evaluate(module, images, given["targets"])
    embedded = module.embedding(images)
    nobody = torch.full((4,), -1)
    losses = knn_loss(embedded, given["targets"], nobody, module.memory, module.labels, 0.05)
    torch.testing.assert_close(figures["val_loss"], losses.sum())
    hits = nearest_class(embedded, module.memory, module.labels, 0.05) == given["targets"]
    assert figures["val_accuracy"] == hits.sum()


def test_views_have_seeds_of_their_own():
    seeds = torch.tensor([0, 5, 2**62])
    got = view_seeds(seeds, 4)
    assert torch.equal(got[:, 0], seeds)
    assert len(got.unique()) == 12 and (got >= 0).all()
    assert torch.equal(got[1:2], view_seeds(seeds[1:2], 4))


def test_what_one_view_draws_is_not_what_another_draws_one_number_later():
    seeds = torch.tensor([derive_seed(0, "test", index) for index in range(400)])
    drawn = number_table(view_seeds(seeds, 3).flatten()).unflatten(0, (400, 3))
    for one in range(3):
        for other in range(3):
            for later in range(0 if one != other else 1, 4):
                same = drawn[:, one, later:] == drawn[:, other, : drawn.shape[2] - later]
                assert same.float().mean() < 0.001


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_a_resnet_50_has_the_parameters_of_the_thesis():
    """Table 2.4: trunk 23.5 M, Grafit FC 23.8 M, Grafit 32.9 M."""
    with torch.device("meta"):
        trunk = timm.create_model("resnet50", num_classes=0)
        linear, projector = nn.Linear(2048, 128), mlp(2048, 4096, 256)
    assert math.floor(count(trunk) / 1e5) == 235
    assert round((count(trunk) + count(linear)) / 1e6, 1) == 23.8
    assert math.floor((count(trunk) + count(projector)) / 1e5) == 329


@pytest.mark.parametrize("projector", ["mlp", "linear"])
def test_an_embedding_is_of_a_convolutional_network_too(projector):
    network = timm.create_model("resnet10t", num_classes=3)
    embedding = Embedding(network, GrafitConfig(width=6, hidden=8, projector=projector)).eval()
    vectors = embedding(torch.randn(2, 3, 32, 32))
    assert vectors.shape == (2, 6)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(2))


def test_what_the_run_keeps_is_the_network_with_the_weights_that_were_trained():
    network = tiny_vit()
    task = grafit(network=network)
    assert task.network(task.module) is network
    assert isinstance(task.module, GrafitNetwork)


@pytest.mark.parametrize(
    ("views", "settings", "says"),
    [
        (1, {}, "views.count is 1"),
        (2, {"instance": 0.0, "knn": 0.0}, "there is no loss"),
        (2, {"instance": 0.0, "knn": 0.0, "cross_entropy": 1.0}, "objective=supervised"),
        (1, {"instance": 0.0, "triplet": 1.0}, "two views of an image"),
    ],
)
def test_losses_that_cannot_be_computed_are_refused(views, settings, says):
    with pytest.raises(UsvitError, match=says):
        grafit(views=views, **settings)


def test_cross_entropy_needs_classes():
    context = plan(objective="grafit", grafit=SMALL | {"cross_entropy": 1.0}, views={"count": 2})
    with pytest.raises(UsvitError, match=r"grafit\.cross_entropy needs labels of two or more classes"):
        make(replace(context, n_classes=1), tiny_vit())
