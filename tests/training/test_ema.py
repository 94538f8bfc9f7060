import copy

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from usvit.training.ema import Ema


def test_it_is_pytorchs_own_mean_to_the_bit_in_the_same_state():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
    ours = Ema(module, 0.9)
    theirs = AveragedModel(copy.deepcopy(module), multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=False)
    for _ in range(4):
        module(torch.randn(6, 5))  # buffers move
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(torch.randn_like(parameter))
        ours.update_parameters(module)
        theirs.update_parameters(module)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        for key, value in theirs.state_dict().items():
            assert torch.equal(ours.state_dict()[key], value), key
    assert not torch.equal(ours.module[0].weight, module[0].weight)
