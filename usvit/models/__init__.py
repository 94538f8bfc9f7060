"""Networks: names and specifications (``zoo``), code (``architectures``), weights, adaptation and prediction.

>>> import usvit.models
>>> usvit.models.list_models("deit_??", family="deit")
['deit_ti']
"""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .architectures.axial import AxialAttention as AxialAttention
    from .architectures.class_attention import ClassBlock as ClassBlock
    from .architectures.flexible import FlexiblePatchEmbed as FlexiblePatchEmbed
    from .architectures.flexible import make_flexible as make_flexible
    from .architectures.other_sizes import accept_side as accept_side
    from .architectures.other_sizes import forward_at_side as forward_at_side
    from .architectures.parallel import ParallelBlock as ParallelBlock
    from .architectures.parallel import fuse_branches as fuse_branches
    from .architectures.positions import Positions as Positions
    from .architectures.positions import RelativeAttention as RelativeAttention
    from .architectures.positions import sincos_2d as sincos_2d
    from .architectures.stems import ConvStem as ConvStem
    from .architectures.stems import HMLPStem as HMLPStem
    from .architectures.stems import LinearStem as LinearStem
    from .architectures.stems import LocalStem as LocalStem
    from .architectures.vit import ViT as ViT
    from .build import Statistics as Statistics
    from .build import build_model as build_model
    from .build import build_with_report as build_with_report
    from .build import count_parameters as count_parameters
    from .build import input_statistics as input_statistics
    from .build import start_off_zero as start_off_zero
    from .build import timm_test_config as timm_test_config
    from .closed_form import count_plain as count_plain
    from .complexity import Complexity as Complexity
    from .complexity import Cost as Cost
    from .complexity import blank as blank
    from .complexity import count as count
    from .complexity import forward_macs as forward_macs
    from .evaluation_view import EvaluationView as EvaluationView
    from .evaluation_view import run_of_weights as run_of_weights
    from .factory import create_model as create_model
    from .factory import list_models as list_models
    from .features import caught_inputs as caught_inputs
    from .features import logits_and_features as logits_and_features
    from .features import vectors as vectors
    from .fixed_network import FixedNetwork as FixedNetwork
    from .fixed_network import resolve_networks as resolve_networks
    from .foundation import FoundationModel as FoundationModel
    from .foundation import foundation_models as foundation_models
    from .heads import check_classes as check_classes
    from .heads import has_distillation_head as has_distillation_head
    from .heads import load_head as load_head
    from .image_statistics import picture_statistics as picture_statistics
    from .image_statistics import statistics_of as statistics_of
    from .info import describe_model as describe_model
    from .layer_scale import fix_layer_scale as fix_layer_scale
    from .lora import add_lora as add_lora
    from .lora import lora_state as lora_state
    from .mask_head import WithMaskHead as WithMaskHead
    from .mask_head import feature_maps as feature_maps
    from .mask_head import last_of_each_size as last_of_each_size
    from .mask_head import mask_loss as mask_loss
    from .mlp_head import give_mlp_head as give_mlp_head
    from .ood import MAX_BYTES as MAX_BYTES
    from .ood import NOVELTY_FILE as NOVELTY_FILE
    from .ood import Observed as Observed
    from .ood import OodDetector as OodDetector
    from .ood import read_ood_detector as read_ood_detector
    from .shared_backbone import same_backbone as same_backbone
    from .shared_backbone import several_logits_and_features as several_logits_and_features
    from .spec import PROTOCOLS as PROTOCOLS
    from .spec import ModelSpec as ModelSpec
    from .trainable import TuneReport as TuneReport
    from .trainable import checkpoint_gradients as checkpoint_gradients
    from .trainable import head_parts as head_parts
    from .trainable import set_trainable as set_trainable
    from .trainable import train_mode as train_mode
    from .trained_model import CAPTIONS_FILE as CAPTIONS_FILE
    from .trained_model import SEGMENTER_FILE as SEGMENTER_FILE
    from .trained_model import TEXT_FILE as TEXT_FILE
    from .trained_model import UPSTREAM as UPSTREAM
    from .trained_model import TrainedModel as TrainedModel
    from .trained_model import load_network as load_network
    from .trained_model import load_trained as load_trained
    from .upstream_model import UpstreamModel as UpstreamModel
    from .view_attention import ATTENTION_FILE as ATTENTION_FILE
    from .view_attention import ViewAttention as ViewAttention
    from .view_attention import WithViewAttention as WithViewAttention
    from .view_attention import pooled_views as pooled_views
    from .view_attention import read_attention as read_attention
    from .weights import LoadReport as LoadReport
    from .weights import Weights as Weights
    from .weights import is_named as is_named
    from .weights import read_state_dict as read_state_dict
    from .weights import resolve_weights as resolve_weights
    from .weights import weight_sources as weight_sources
    from .weights.hub import HubUnavailable as HubUnavailable
    from .weights.hub import hub_folder as hub_folder
    from .weights.pins import add_pin as add_pin
    from .weights.pins import own_pins as own_pins
    from .weights.resolve import find_pin as find_pin
    from .weights.run_folds import fold_folders as fold_folders
    from .weights.run_folds import only_fold as only_fold
    from .zoo import PATTERNS as PATTERNS
    from .zoo import ZOO as ZOO
    from .zoo import find_model as find_model
    from .zoo.listing import comparisons as comparisons
    from .zoo.listing import rows as rows
    from .zoo.listing import zoo_counts as zoo_counts
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
