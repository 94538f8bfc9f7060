"""Read and write files: reads are limited, since files may be untrusted; writes are atomic and stay in their folder."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .cells import guarded as guarded
    from .cells import unguarded as unguarded
    from .database import Database as Database
    from .database import insert as insert
    from .output_folder import ABANDONED_AFTER_S as ABANDONED_AFTER_S
    from .output_folder import OutputFolder as OutputFolder
    from .output_folder import TakenFolder as TakenFolder
    from .read import JSON_BYTES as JSON_BYTES
    from .read import TABLE_BYTES as TABLE_BYTES
    from .read import TEXT_BYTES as TEXT_BYTES
    from .read import Unreadable as Unreadable
    from .read import file_state as file_state
    from .read import open_regular as open_regular
    from .read import parse_json as parse_json
    from .read import read_bytes as read_bytes
    from .read import read_json as read_json
    from .read import read_text as read_text
    from .read import regular_file as regular_file
    from .read import sha256_of_file as sha256_of_file
    from .read import sha256_of_text as sha256_of_text
    from .read import within as within
    from .tables import bounded_parquet as bounded_parquet
    from .tables import csv_text as csv_text
    from .tables import read_array as read_array
    from .tables import read_csv as read_csv
    from .tables import read_parquet as read_parquet
    from .tables import write_csv as write_csv
    from .workbook import workbook_bytes as workbook_bytes
    from .write import LOCK as LOCK
    from .write import DiskError as DiskError
    from .write import alone_in as alone_in
    from .write import append_text as append_text
    from .write import atomic as atomic
    from .write import clear_partials as clear_partials
    from .write import copy_file as copy_file
    from .write import copy_folder as copy_folder
    from .write import disk_errors as disk_errors
    from .write import folder_within as folder_within
    from .write import for_the_owner_alone as for_the_owner_alone
    from .write import is_partial_of as is_partial_of
    from .write import locked as locked
    from .write import make_folder as make_folder
    from .write import no_follow as no_follow
    from .write import refuse_link as refuse_link
    from .write import refuse_linked_folders as refuse_linked_folders
    from .write import write_atomic as write_atomic
    from .write import write_bytes as write_bytes
    from .write import write_json as write_json
    from .write import write_text as write_text
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
