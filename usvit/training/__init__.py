"""Training: the loop, its state and checkpoints, tasks, optimizers, losses, and several processes."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .batch_norm import recompute_statistics as recompute_statistics
    from .checkpoint import CheckpointManager as CheckpointManager
    from .device import Device as Device
    from .device import check_compiler as check_compiler
    from .device import resolve_device as resolve_device
    from .device import seed_everything as seed_everything
    from .device import torch_threads as torch_threads
    from .distillation import DistillationTask as DistillationTask
    from .distillation import Teacher as Teacher
    from .distillation import hard_distillation as hard_distillation
    from .distillation import soft_distillation as soft_distillation
    from .distributed import World as World
    from .distributed import check_share as check_share
    from .distributed import full_state as full_state
    from .distributed import gather_rows as gather_rows
    from .distributed import launch as launch
    from .distributed import sum_over_processes as sum_over_processes
    from .early_stopping import EarlyStopping as EarlyStopping
    from .ema import Ema as Ema
    from .head_training import FeatureStore as FeatureStore
    from .head_training import HeadOnFeatures as HeadOnFeatures
    from .head_training import HeadTraining as HeadTraining
    from .head_training import Subject as Subject
    from .inference import NetworkOutputs as NetworkOutputs
    from .inference import predict as predict
    from .logistic_head import HeadSample as HeadSample
    from .logistic_head import fit_logistic_head as fit_logistic_head
    from .logistic_head import logistic_coefficients as logistic_coefficients
    from .losses import WeightedCrossEntropy as WeightedCrossEntropy
    from .losses import balanced_class_weights as balanced_class_weights
    from .losses import binary_cross_entropy as binary_cross_entropy
    from .losses import soft_cross_entropy as soft_cross_entropy
    from .mixup import Mixup as Mixup
    from .optimizers import check_optimizer as check_optimizer
    from .optimizers import half_cosine as half_cosine
    from .optimizers import make_optimizer as make_optimizer
    from .signals import SIGNALS as SIGNALS
    from .signals import Stopped as Stopped
    from .signals import stop_requests as stop_requests
    from .state import TrainState as TrainState
    from .step_log import StepLog as StepLog
    from .task import ON_HOST as ON_HOST
    from .task import ClassificationTask as ClassificationTask
    from .task import MaskedClassificationTask as MaskedClassificationTask
    from .task import TrainingTask as TrainingTask
    from .task import ViewsTask as ViewsTask
    from .trackers import check_trackers as check_trackers
    from .trainer import Figures as Figures
    from .trainer import FitResult as FitResult
    from .trainer import Trainer as Trainer
    from .trainer import training_step as training_step
    from .view_pooling import fit_view_attention as fit_view_attention
    from .worker_failures import lost_peers as lost_peers
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
