"""Tables in files: a small Parquet file cannot fill the memory."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from usvit.errors import UsvitError
from usvit.files import read_parquet


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
@pytest.mark.parametrize("rows", [999_000, 1_001_000])
def test_a_dictionary_of_texts_counts_as_long_as_its_cells(tmp_path, kind, rows):
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 995], kind))
    pq.write_table(pa.table({"note": column}), tmp_path / "a.parquet", compression="zstd")
    if rows > 1_000_000:  # with 4 bytes of index
        with pytest.raises(UsvitError, match="more than 1,000,000,000 bytes once decoded"):
            read_parquet(tmp_path / "a.parquet")
    else:
        assert len(read_parquet(tmp_path / "a.parquet")) == rows


def test_a_dictionary_of_numbers_is_read(tmp_path):
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([5, 7]))
    pq.write_table(pa.table({"size": column}), tmp_path / "a.parquet")
    assert read_parquet(tmp_path / "a.parquet")["size"].isna().tolist() == [False, False, True]
