import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import normalize

from tests.records.contents import network
from tests.upstream.pretraining.toy import batch, plan
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.upstream.config.pretrain import TokenizerConfig
from usvit.upstream.pretraining.codebook import DEAD, DECAY, Codebook
from usvit.upstream.pretraining.tokenizer import BETA, Tokenizer, load_tokenizer, make
from usvit.upstream.sources.fractals import FractalSource

TINY = {"vocabulary": 6, "width": 8, "code_width": 4, "patch": 8, "depth": 1}


def tiny(**tokenizer):
    config = plan(objective="tokenizer", tokenizer=TINY | tokenizer, model={"image_size": 32})
    return make(config, torch.nn.Identity())


def unit(*shape, seed=0):
    return normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def test_a_vector_becomes_the_code_that_is_nearest():
    book, vectors = Codebook(7, 3), unit(2, 5, 3)
    words, chosen = book(vectors)
    for image in range(2):
        for place in range(5):
            far = [math.dist(vectors[image, place].tolist(), code.tolist()) for code in book.codes]
            assert chosen[image, place] == far.index(min(far))
            torch.testing.assert_close(words[image, place], book.codes[chosen[image, place]])


def test_gradients_pass_the_codebook_as_if_it_were_not_there():
    book, vectors = Codebook(7, 3), unit(4, 3).requires_grad_()
    weight = torch.randn(4, 3)
    (book(vectors)[0] * weight).sum().backward()
    torch.testing.assert_close(vectors.grad, weight)


def test_codes_follow_the_running_mean_of_what_chose_them():
    book, running = Codebook(3, 2), {"n": [0.0] * 3, "m": [[0.0, 0.0] for _ in range(3)]}
    for step in range(4):
        vectors = unit(9, 2, seed=step)
        chosen = torch.arange(9) % 3
        sums = torch.stack([vectors[chosen == code].sum(0) for code in range(3)])
        book.follow(torch.bincount(chosen, minlength=3), sums, vectors[:0])
        for code in range(3):
            running["n"][code] = DECAY * running["n"][code] + (1 - DECAY) * 3
            running["m"][code] = [
                DECAY * old + (1 - DECAY) * float(vectors[chosen == code][:, axis].sum())
                for axis, old in enumerate(running["m"][code])
            ]
    for code in range(3):
        assert book.usage[code].item() == pytest.approx(running["n"][code], rel=1e-5)
        length = math.hypot(*running["m"][code])
        expected = [part / length for part in running["m"][code]]
        assert book.codes[code].tolist() == pytest.approx(expected, abs=1e-5)


def test_dead_codes_move_to_vectors_of_the_batch_in_their_order_and_live_ones_do_not():
    book = Codebook(4, 2)
    book.usage.copy_(torch.tensor([10.0, 0.1, 12.0, 0.0]))
    book.sums.copy_(book.codes * book.usage[:, None])
    before, candidates = book.codes.clone(), unit(3, 2, seed=3)
    book.follow(book.usage.clone(), book.sums.clone(), candidates)
    torch.testing.assert_close(book.codes[[0, 2]], before[[0, 2]])
    torch.testing.assert_close(book.codes[[1, 3]], candidates[:2])
    assert book.usage[1] > DEAD * book.usage.mean()


def test_perplexity_counts_the_codes_in_use():
    book = Codebook(8, 2)
    book.usage[:4] = 2.5
    assert book.perplexity.item() == pytest.approx(4)
    book.usage[:] = torch.tensor([1.0] + [0.0] * 7)
    assert book.perplexity.item() == pytest.approx(1)


def test_there_is_one_code_for_each_patch_in_raster_order():
    tokenizer = Tokenizer(TokenizerConfig(**TINY | {"depth": 1})).eval()
    images = torch.randn(2, 3, 32, 48)
    codes = tokenizer.codes(images)
    assert codes.shape == (2, 24) and codes.dtype == torch.int64
    vectors = tokenizer.encode(images)
    assert codes[1, 6 * 2 + 5] == (tokenizer.codebook.codes @ vectors[1, 2, 5]).argmax()
    assert tokenizer(images)[0].shape == images.shape


def test_the_loss_is_the_pixels_error_and_the_commitment():
    task, rows = tiny(), batch()
    loss = task.loss(task.module, rows, 0)
    images = plan().inputs(rows["images"], rows["seeds"])
    made, vectors, chosen = task.module(images)
    expected = 0.0
    for image in range(4):
        expected += ((made[image] - images[image]) ** 2).mean().item()
        distances = [
            math.dist(vectors[image, place].tolist(), task.module.codebook.codes[chosen[image, place]].tolist()) ** 2
            for place in range(16)
        ]
        expected += BETA * sum(distances) / 16
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert task.normalizer(rows, 0) == 4


def test_portions_change_neither_gradients_nor_the_vocabulary():
    whole, portions, rows = tiny(), tiny(), batch(6)
    whole.loss(whole.module, rows, 0).backward()
    whole.on_step_end(0)
    for start in (0, 2, 4):
        part = {key: value[start : start + 2] for key, value in rows.items()}
        portions.loss(portions.module, part, 0).backward()
    portions.on_step_end(0)
    for (name, one), other in zip(whole.module.named_parameters(), portions.module.parameters(), strict=True):
        assert one.grad is not None, name
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)
    for one, other in zip(whole.module.buffers(), portions.module.buffers(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_tokenizer_begins_the_same_by_the_same_seed_and_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    one, other = tiny(), tiny()
    assert torch.equal(before, torch.random.get_rng_state())
    for a, b in zip(one.module.state_dict().values(), other.module.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_images_that_are_no_multiple_of_the_patch_are_refused():
    with pytest.raises(UsvitError, match=r"not a multiple of tokenizer.patch 7"):
        tiny(patch=7)


def written(folder, **metadata):
    """A run's fold, as ``usvit.upstream.pretraining_run.experiment`` leaves it."""
    folder.mkdir(parents=True)
    module = tiny().module
    save_file(module.state_dict(), folder / "model.safetensors")
    statistics = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.25, 0.3]}
    given = network(
        architecture="tokenizer",
        tokenizer=TINY,
        preprocessing={"image_size": 32, "resize": "squash", "crop": "tissue", **statistics},
        weights_sha256=sha256_of_file(folder / "model.safetensors"),
    )
    (folder / "model.json").write_text(json.dumps(given | metadata))
    return module


def test_a_run_gives_its_tokenizer_back_frozen(tmp_path):
    module = written(tmp_path / "run")
    tokenizer, preprocessing = load_tokenizer(tmp_path / "run")
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(tokenizer.codes(images), module.eval().codes(images))
    assert not tokenizer.training and not any(parameter.requires_grad for parameter in tokenizer.parameters())
    assert preprocessing.std == (0.2, 0.25, 0.3)


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"architecture": "vit_ti16"}, "not of a tokenizer"),
        ({"weights_sha256": "0" * 64}, "do not match"),
        ({"tokenizer": {"vocabulary": "many"}}, "is damaged"),
        ({"tokenizer": TINY | {"vocabulary": 9}}, "do not fit"),
        ({"preprocessing": {"mean": [0.5], "std": [0.5]}}, "is damaged"),
    ],
)
def test_what_is_no_whole_tokenizer_is_refused(tmp_path, metadata, says):
    written(tmp_path / "run", **metadata)
    with pytest.raises(UsvitError, match=says):
        load_tokenizer(tmp_path / "run")


@pytest.mark.slow
def test_a_tokenizer_learns_fractals_and_uses_its_vocabulary():
    source = FractalSource(classes=8, size=128, image_size=64)
    images = torch.from_numpy(np.stack([np.asarray(source.image(index)) for index in range(128)]))
    settings = {"vocabulary": 64, "width": 32, "code_width": 8, "patch": 8, "depth": 1}
    task = make(plan(objective="tokenizer", tokenizer=settings, model={"image_size": 64}), torch.nn.Identity())
    module, inputs = task.module, plan().inputs
    held_out = inputs(images[112:], torch.zeros(16))
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for step in range(120):
        rows = torch.randint(0, 112, (16,), generator=generator)
        optimizer.zero_grad()
        (task.loss(module, {"images": images[rows], "seeds": rows}, step) / 16).backward()
        optimizer.step()
        task.on_step_end(step)
    figures = {key: value.item() / 16 for key, value in task.evaluate(module.eval(), held_out, rows).items()}
    assert figures["val_loss"] < 0.5 * held_out.var().item()  # measured: 0.36 of 1.07
    assert figures["val_perplexity"] > 40  # measured: 58 of 64
    assert len(module.codes(held_out).unique()) > 40
