import timm
import torch
from timm.models.vision_transformer import Block
from torch.utils._python_dispatch import TorchDispatchMode

from usvit.models.architectures import fuse_branches
from usvit.models.architectures.parallel import ParallelBlock

from .networks import images, scramble, small, tiny_vit


class Products(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm)
        return function(*args, **(kwargs or {}))


def parallel(**options):
    return scramble(tiny_vit(branches=3, layer_scale=0.1, **options))


def test_one_branch_is_timms_sequential_block():
    block = scramble(ParallelBlock(32, 4, num_parallel=1, mlp_ratio=2, qkv_bias=True, init_values=0.1)).eval()
    sequential = Block(32, 4, mlp_ratio=2, qkv_bias=True, init_values=0.1).eval()
    renamed = {
        key.replace("attns.0.norm", "norm1").replace("attns.0.attn", "attn").replace("attns.0.ls", "ls1")
        .replace("ffns.0.norm", "norm2").replace("ffns.0.mlp", "mlp").replace("ffns.0.ls", "ls2"): value
        for key, value in block.state_dict().items()
    }  # fmt: skip
    sequential.load_state_dict(renamed)
    x = torch.randn(2, 7, 32)
    torch.testing.assert_close(block(x), sequential(x))
    block.fused = True
    torch.testing.assert_close(block(x), sequential(x), rtol=1e-5, atol=1e-5)


def test_a_network_of_one_branch_is_made_of_timms_blocks():
    assert type(tiny_vit(branches=1).blocks[0]) is Block


def test_two_branches_are_timms_parallel_vit():
    options = {"img_size": 64, "num_classes": 5, "depth": 2}
    reference = scramble(timm.create_model("vit_small_patch16_18x2_224", **options).eval())
    model = tiny_vit(width=384, mlp=1536, heads=6, branches=2, layer_scale=1e-5)
    model.load_state_dict(reference.state_dict())
    assert model(images()).equal(reference(images()))


def test_fused_branches_give_the_same_in_fewer_products():
    model = parallel()
    with torch.no_grad(), Products() as apart:
        expected = model(images())
    assert fuse_branches(model) == 2
    with torch.no_grad():
        torch.testing.assert_close(model(images()), expected, rtol=1e-4, atol=1e-5)
        with Products() as together:  # the joined weights are kept from the call before
            model(images())
    assert apart.count - together.count == 2 * (3 * 4 - 4)  # 2 blocks; qkv, projection and two of the MLP
    assert fuse_branches(model, on=False) == 0
    with torch.no_grad(), Products() as again:
        assert model(images()).equal(expected)
    assert again.count == apart.count


def test_fusing_leaves_the_weights_and_their_names():
    model = parallel()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    fuse_branches(model)
    with torch.no_grad():
        model(images())
    assert list(model.state_dict()) == list(state)
    assert all(value.equal(state[key]) for key, value in model.state_dict().items())


def test_kept_weights_follow_loading_and_training():
    model, other = parallel(), scramble(parallel())
    fuse_branches(model)
    with torch.no_grad():
        model(images())
        model.load_state_dict(other.state_dict())
        torch.testing.assert_close(model(images()), other(images()), rtol=1e-4, atol=1e-5)
    for network in (model, other):
        network.train()
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
        network(images()).square().mean().backward()
        optimiser.step()
        network.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(images()), other(images()), rtol=1e-3, atol=1e-4)


def test_kept_weights_follow_the_type():
    model = parallel()
    fuse_branches(model)
    with torch.no_grad():
        model(images())
        assert model.double()(images().double()).dtype == torch.float64


def test_gradients_reach_every_branch():
    gradients = []
    for on in (False, True):
        model = parallel()
        fuse_branches(model, on)
        model(images()).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for apart, together in zip(*gradients, strict=True):
        torch.testing.assert_close(together, apart, rtol=1e-3, atol=1e-4)


def test_stochastic_depth_drops_each_branch_alone():
    outputs = []
    for on in (False, True):
        model = parallel(drop_path_rate=0.5).train()
        fuse_branches(model, on)
        torch.manual_seed(5)
        outputs.append(model.blocks[1](torch.ones(2, 17, 32)))
    assert outputs[0].equal(outputs[1])


def test_what_cannot_be_fused_is_left():
    for kind in ("vit", "vit-parallel-relative", "vit-axial-parallel", "patchconvnet"):
        model = scramble(small(kind))
        expected = model(images())
        assert fuse_branches(model) == 0
        assert model(images()).equal(expected)
