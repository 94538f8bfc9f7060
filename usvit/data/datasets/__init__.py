"""Data sets: cards, readers, manifests, and upstream images for pre-training."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .cards import DataCard as DataCard
    from .cards import OwnTable as OwnTable
    from .cards import card_facts as card_facts
    from .cards import card_names as card_names
    from .cards import load_card as load_card
    from .cards import load_cards as load_cards
    from .cards import read_prose as read_prose
    from .cards import same_images as same_images
    from .croissant import croissant as croissant
    from .data_root import DataRoot as DataRoot
    from .data_root import roots_from as roots_from
    from .examination_cache import decoder_versions as decoder_versions
    from .identities import Identities as Identities
    from .identities import Places as Places
    from .identities import is_private as is_private
    from .labelled_images import HASHED_AT_ONCE as HASHED_AT_ONCE
    from .labelled_images import ConcatDataset as ConcatDataset
    from .labelled_images import GeneratedSource as GeneratedSource
    from .labelled_images import ImageText as ImageText
    from .labelled_images import Indices as Indices
    from .labelled_images import LabelledByImage as LabelledByImage
    from .labelled_images import Relabelled as Relabelled
    from .labelled_images import StringArray as StringArray
    from .labelled_images import Subset as Subset
    from .labelled_images import UpstreamDataset as UpstreamDataset
    from .labelled_images import draw as draw
    from .labelled_images import made_on_the_fly as made_on_the_fly
    from .labelled_images import refined as refined
    from .locate import folder_with_layout as folder_with_layout
    from .locate import given_root as given_root
    from .locate import open_dataset as open_dataset
    from .locate import open_places as open_places
    from .locate import root_from_environment as root_from_environment
    from .manifest import Manifest as Manifest
    from .manifest import build_manifest as build_manifest
    from .manifest import decode_unchanged as decode_unchanged
    from .manifest import mask_names as mask_names
    from .manifest_file import check_images as check_images
    from .manifest_file import dataset_or_manifest as dataset_or_manifest
    from .manifest_file import datasets_of as datasets_of
    from .manifest_file import described_table as described_table
    from .manifest_file import descriptions_of as descriptions_of
    from .manifest_file import keep_only as keep_only
    from .manifest_file import open_manifest as open_manifest
    from .manifest_file import read_manifest as read_manifest
    from .manifest_file import write_manifest as write_manifest
    from .manifest_source import ManifestSource as ManifestSource
    from .preparation import Prepared as Prepared
    from .preparation import check_against_card as check_against_card
    from .preparation import prepare as prepare
    from .preparation import split as split
    from .preparation import write_link as write_link
    from .readers import ImageRecord as ImageRecord
    from .readers import subfolders as subfolders
    from .readers.spreadsheets import Spreadsheet as Spreadsheet
    from .readers.spreadsheets import read_private_sheet as read_private_sheet
    from .units import SIDE_WORDS as SIDE_WORDS
    from .units import SIDES as SIDES
    from .units import UNIT_COLUMNS as UNIT_COLUMNS
    from .units import UNIT_KEYS as UNIT_KEYS
    from .units import contradiction as contradiction
    from .units import count_units as count_units
    from .units import disagreeing_lesions as disagreeing_lesions
    from .units import side_of as side_of
    from .units import with_units as with_units
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
