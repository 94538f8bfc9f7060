"""Every file is read through ``usvit.files``, which waits for no FIFO and reads nothing of unbounded size.

The test looks at each call in the package that opens or reads a file by its path. What is not in ``ALLOWED`` fails.
"""

import ast
import re
from collections import Counter

from tests.test_architecture import PACKAGE, nodes_of

PARSERS = re.compile(
    r"""
    (builtins|io|os|codecs|gzip|bz2|lzma)\.open | open | mmap\.mmap
    | (np|numpy)\.(load|loadtxt|genfromtxt|fromfile|memmap)
    | (pd|pandas)\.(read_\w+|HDFStore|ExcelFile)
    | (pq|parquet|pyarrow\.parquet)\.(ParquetFile|read_\w+|ParquetDataset) | ParquetFile
    | (yaml|tomllib|joblib)\.load(_\w+)?
    | (json|torch|pickle)\.load | yaml\.(safe_|full_|unsafe_)?load(_all)?
    | load_file | safe_open | loadmat | scipy\.io\.\w+ | load_workbook | openpyxl\.load_workbook
    | (pydicom\.)?(dcmread|read_file_meta_info|read_partial)
    | (zipfile\.)?ZipFile | tarfile\.(open|TarFile) | Image\.open | cv2\.imread | h5py\.File | sqlite3\.connect
    | (ElementTree|ET)\.parse | \w+\.load_(cert_chain|verify_locations) | ssl\.create_default_context
    """,
    re.VERBOSE,
)
METHODS = {"read_text", "read_bytes"}
STREAMS = {"io.BytesIO", "open_regular", "regular_file"}
"""Calls whose result is an open, bounded file."""
OPEN_FILES = {"file", "opened", "stored", "self._stream", "content", "stream", "buffer", "handle"}
"""Names of variables that hold an open file, not a path."""
PATHS_ONLY = {"safe_open", "load_file", "os.open", "sqlite3.connect", "read_file_meta_info"}
"""Functions that cannot read an open file."""

PACKAGE_FILE = "a file of the package itself"
KERNEL = "a file of /proc or /sys"
OWN_WRITING = "opened for writing, in place, under a name that was checked"
OWN_TEMPORARY = "usvit has just made the file, under a new name in its own folder"
DATABASE = "SQLite opens its own database, whose file was checked"
CHECKED = "usvit.files has opened the same path before, so it is a regular file of bounded size"

# File -> call -> (number of such calls, why they need no bounded reader).
ALLOWED = {
    "upstream/bench/memory.py": {".read_text": (1, KERNEL)},
    "upstream/bench/worker.py": {"json.load": (1, "the standard input, which the parent process writes")},
    "upstream/cli/shape.py": {".read_text": (2, OWN_TEMPORARY)},
    "cluster.py": {".read_text": (2, KERNEL), "open": (1, OWN_WRITING), "os.open": (1, OWN_WRITING)},
    "data/datasets/download.py": {"open": (1, OWN_WRITING)},
    "data/datasets/examination_cache.py": {"sqlite3.connect": (1, DATABASE)},
    "data/datasets/fetch.py": {"open": (1, OWN_WRITING)},
    "upstream/sources/imagenet.py": {".read_text": (2, "a file of timm")},
    "upstream/sources/robustness_sets.py": {".read_text": (1, "a file of timm")},
    "data/loading/image_store.py": {".open": (1, OWN_WRITING), "np.memmap": (2, OWN_TEMPORARY)},
    "data/splits/seen_files.py": {"mmap.mmap": (1, CHECKED)},
    "experiments/fold_worker.py": {"np.memmap": (1, OWN_TEMPORARY)},
    "experiments/parallel_folds.py": {".open": (1, OWN_WRITING)},
    "exporting/folder.py": {"open": (1, OWN_TEMPORARY)},
    "publishing/pull.py": {"open": (1, OWN_WRITING)},
    "kit/install.py": {"open": (2, "it runs without usvit; it opens regular files only, and reads a bounded part")},
    "lazy_names.py": {".read_bytes": (1, PACKAGE_FILE)},
    "limited/worker_process.py": {".read_text": (1, KERNEL), "os.open": (1, "the null device")},
    "machine_load.py": {".read_text": (2, KERNEL)},
    "models/foundation.py": {".read_text": (1, PACKAGE_FILE)},
    "models/weights/adapter_base.py": {"safe_open": (1, CHECKED)},
    "models/weights/read.py": {"safe_open": (1, CHECKED)},
    "models/zoo/listing.py": {".read_text": (1, PACKAGE_FILE)},
    "upstream/text_tuning/tower.py": {"safe_open": (1, CHECKED)},
    "node/audit_log.py": {"os.open": (2, OWN_WRITING)},
    "node/checks.py": {
        "server.load_cert_chain": (2, CHECKED),
        "client.load_verify_locations": (1, CHECKED),
    },
    "files/database.py": {"sqlite3.connect": (1, DATABASE), "os.open": (1, OWN_WRITING)},
    "node/database.py": {".read_text": (1, KERNEL)},
    "reviewing/guard.py": {".read_bytes": (1, PACKAGE_FILE)},
    "node/receiving/archives.py": {"open": (1, OWN_TEMPORARY)},
    "node/receiving/folder_watcher.py": {"open": (1, OWN_TEMPORARY)},
    "node/receiving/instance_store.py": {"os.open": (1, "a folder, to flush it"), "open": (1, OWN_TEMPORARY)},
    "node/receiving/storage_scp.py": {
        "context.load_cert_chain": (1, CHECKED),
        "context.load_verify_locations": (1, CHECKED),
        "open": (1, OWN_WRITING),
    },
    "node/sending/answers.py": {"read_file_meta_info": (1, CHECKED)},
    "node/sending/send_files.py": {"open": (1, OWN_WRITING)},
    "node/sending/store_scu.py": {
        "ssl.create_default_context": (1, CHECKED),
        "context.load_cert_chain": (1, CHECKED),
        "dcmread": (1, CHECKED),
    },
    "node/sending/stow.py": {"dcmread": (1, CHECKED)},
    "pseudonyms.py": {"os.open": (1, OWN_WRITING)},
    "records/schemas.py": {".read_text": (1, PACKAGE_FILE)},
    "reports/checklists.py": {".read_text": (1, PACKAGE_FILE), "yaml.safe_load": (1, PACKAGE_FILE)},
    "reports/static.py": {".read_text": (1, PACKAGE_FILE)},
    "resources.py": {".read_text": (5, KERNEL)},
    "scoring/audit_log.py": {"os.open": (1, OWN_WRITING)},
    "scoring/discovery/file_lists.py": {"read_file_meta_info": (2, CHECKED)},
    "scoring/discovery/inputs.py": {"os.open": (1, "without waiting, and four bytes are read")},
    "scoring/journal.py": {"sqlite3.connect": (1, DATABASE)},
    "scoring/tables/rollup.py": {"sqlite3.connect": (1, "a database in memory")},
    "upstream/studies/shift/published.py": {".read_text": (1, PACKAGE_FILE)},
    "threads.py": {".read_text": (1, KERNEL)},
}


def _calls(path):
    """Yield (line, name of the function) of each call that opens or reads a file by its path."""
    for node in nodes_of(path):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        first = node.args[0] if node.args else None
        if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            yield node.lineno, f".{node.func.attr}"
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "open" and _has_mode(node):
            if not _of_stream(node):
                yield node.lineno, ".open"
        elif PARSERS.fullmatch(name) and (name in PATHS_ONLY or not _is_stream(first)) and not _of_stream(node):
            yield node.lineno, name


def _has_mode(call):
    """Return True for ``path.open("rb")`` or ``path.open(encoding=...)``, and False for other methods named open."""
    modes = [one.value for one in call.args[:1] if isinstance(one, ast.Constant)]
    named = {one.arg for one in call.keywords} & {"mode", "encoding", "newline", "buffering"}
    return bool(named) or any(isinstance(mode, str) and re.fullmatch(r"[rwxabt+]{1,3}", mode) for mode in modes)


def _of_stream(call):
    return any(one.arg == "fileobj" for one in call.keywords)


def _is_stream(argument):
    if isinstance(argument, ast.Call):
        return ast.unparse(argument.func) in STREAMS
    return isinstance(argument, ast.Name | ast.Attribute) and ast.unparse(argument) in OPEN_FILES


def found():
    calls = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name not in ("files/read.py", "files/tables.py", "files/write.py"):
            calls.update((name, call) for _, call in _calls(path))
    return calls


def test_files_are_opened_by_the_bounded_reader_alone():
    calls = found()
    expected = {(file, call): number for file, entries in ALLOWED.items() for call, (number, _) in entries.items()}
    new = {where: number for where, number in calls.items() if number > expected.get(where, 0)}
    assert not new, "read these files with usvit.files (read_text, read_bytes, read_csv, regular_file, open_regular)"
    gone = {where: number for where, number in expected.items() if number > calls.get(where, 0)}
    assert not gone, "remove these entries from ALLOWED"


def test_the_search_sees_each_way_to_read_a_file_by_its_path(tmp_path):
    reading = [
        *('open("x")', 'Path("x").read_text()', 'path.open("rb")', "np.load(path)", "pd.read_csv(path)"),
        *("yaml.safe_load(path)", "openpyxl.load_workbook(path)", "torch.load(path)", "safe_open(file)"),
        *("pq.ParquetFile(path)", "zipfile.ZipFile(path)", "dcmread(path)", "os.open(path, 0)", "json.load(path)"),
    ]
    bounded = ["np.load(file)", "pd.read_csv(io.BytesIO(x))", "store.open(name)", "tarfile.open(fileobj=file)"]
    for number, line in enumerate([*reading, *bounded]):
        (tmp_path / f"{number}.py").write_text(line)
        assert len(list(_calls(tmp_path / f"{number}.py"))) == (number < len(reading)), line
