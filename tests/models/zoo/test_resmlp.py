import pytest
import timm
import torch

from usvit.models.zoo import find_model

STARTS = {
    # thesis, section 4.3.1: "as a function of the depth by following CaiT": 0.1 up to 18 layers, 1e-5 up to 24, 1e-6
    **dict.fromkeys(["resmlp_s12", "resmlp_s12_14", "resmlp_s12_8", "resmlp_s18"], 1e-1),
    **dict.fromkeys(["resmlp_s24", "resmlp_s24_8", "resmlp_b24", "resmlp_b24_8"], 1e-5),
    **dict.fromkeys(["resmlp_s36", "resmlp_s36_8"], 1e-6),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_layer_scale_starts_by_depth_whatever_the_patch(name):
    spec = find_model(name)
    state = timm.create_model(spec.architecture, num_classes=2, **spec.options).state_dict()
    starts = torch.cat([value for key, value in state.items() if key.endswith((".ls1", ".ls2"))])
    assert starts.equal(torch.full_like(starts, STARTS[name]))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "timms"), [("resmlp_s12", "resmlp_12_224"), ("resmlp_b24_8", "resmlp_big_24_224")])
def test_released_weights_fit_where_ours_is_built(name, timms):
    spec = find_model(name)
    with torch.device("meta"):
        ours, theirs = timm.create_model(spec.architecture, **spec.options), timm.create_model(timms)
    assert {k: v.shape for k, v in ours.state_dict().items()} == {k: v.shape for k, v in theirs.state_dict().items()}
    assert spec.recommended.timm.startswith(timms)
