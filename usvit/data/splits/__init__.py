"""Splits: groups that stay together, folds, and the images that a network has seen."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .contamination import contamination_of as contamination_of
    from .contamination import contamination_phrase as contamination_phrase
    from .contamination import contamination_warning as contamination_warning
    from .contamination import names_with_same_images as names_with_same_images
    from .contamination import refuse_contaminated as refuse_contaminated
    from .contamination import unlisted as unlisted
    from .exclusions import CONFLICT as CONFLICT
    from .exclusions import EXCLUSION_KINDS as EXCLUSION_KINDS
    from .exclusions import NOT_KEPT as NOT_KEPT
    from .exclusions import OTHER_CLASS as OTHER_CLASS
    from .exclusions import OTHER_EXCLUSION as OTHER_EXCLUSION
    from .exclusions import kind_of_exclusion as kind_of_exclusion
    from .folds import SPLITS as SPLITS
    from .folds import check_folds as check_folds
    from .folds import folds_sha256 as folds_sha256
    from .folds import leaking_groups as leaking_groups
    from .folds import make_folds as make_folds
    from .folds import n_repeats as n_repeats
    from .folds import read_folds as read_folds
    from .folds import repeat_of as repeat_of
    from .folds import rows_of_split as rows_of_split
    from .groups import OwnIds as OwnIds
    from .groups import group_ids as group_ids
    from .groups import label_conflicts as label_conflicts
    from .groups import possibly_one_patient as possibly_one_patient
    from .leakage import SeenImages as SeenImages
    from .leakage import load_metadata as load_metadata
    from .leakage import passed_on as passed_on
    from .leakage import seen_by as seen_by
    from .leakage import seen_by_weights as seen_by_weights
    from .leakage import together as together
    from .leakage import unrecorded as unrecorded
    from .leakage import write_seen as write_seen
    from .seen_files import MAX_BYTES_EACH as MAX_BYTES_EACH
    from .seen_files import MAX_DESCRIBED as MAX_DESCRIBED
    from .seen_files import Described as Described
    from .seen_files import copies_of_seen as copies_of_seen
    from .seen_files import described_among as described_among
    from .seen_files import joined as joined
    from .seen_files import read_description as read_description
    from .seen_groups import in_seen_groups as in_seen_groups
    from .seen_groups import refuse_seen as refuse_seen
    from .shots import check_shots as check_shots
    from .shots import draw_shots as draw_shots
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
