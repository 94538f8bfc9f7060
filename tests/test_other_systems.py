"""Static checks for macOS and Windows, on which usvit is untried: calls of the system and start methods."""

import ast
import os
import signal

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "usvit"
ABSENT_ON_WINDOWS = {
    *("fork", "getuid", "geteuid", "getgid", "setuid", "chown", "fchown", "statvfs", "mkfifo", "sysconf", "uname"),
    *("sched_getaffinity", "sched_setaffinity", "set_blocking", "killpg", "setsid", "nice", "getloadavg"),
    *("O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK"),
    *("SIGCHLD", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL", "setitimer", "alarm", "pthread_sigmask"),
}
MODULES_ABSENT_ON_WINDOWS = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix"}
GUARDED = {
    "data/io/video_process.py": "hasattr",
    "experiments/fold_worker.py": "hasattr",
    "files/write.py": "os.supports_dir_fd",
    "limited/worker_process.py": "sys.platform",
    "machine_load.py": "AttributeError",
    "processes.py": "hasattr",
    "resources.py": "hasattr",
    "scoring/audit_log.py": "hasattr",
    "training/worker_failures.py": "hasattr",
}
"""File -> by what it asks whether the system has the call; a file of the node or the bench is for Linux."""


def used(path):
    for node in ast.walk(ast.parse(path.read_bytes())):
        of_system = isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("os", "signal")
        if of_system and node.attr in ABSENT_ON_WINDOWS:
            yield node.attr


def test_the_names_are_names_of_this_system():
    assert all(hasattr(os, name) or hasattr(signal, name) for name in ABSENT_ON_WINDOWS)


def test_calls_that_windows_lacks_are_guarded():
    found = {path.relative_to(PACKAGE).as_posix(): set(used(path)) for path in PACKAGE.rglob("*.py") if any(used(path))}
    found = {name: calls for name, calls in found.items() if not name.startswith(("node/", "upstream/bench/"))}
    assert found.keys() == GUARDED.keys(), {name: found.get(name) for name in found.keys() ^ GUARDED.keys()}
    for name, guard in GUARDED.items():
        text = (PACKAGE / name).read_text(encoding="utf-8")
        assert any(one in text for one in guard.split(" or ")), name


def test_no_module_that_windows_lacks_is_imported_with_its_file():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_bytes()).body:
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            assert MODULES_ABSENT_ON_WINDOWS.isdisjoint(names), path


def test_processes_start_without_a_fork_of_this_one():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("get_context", "set_start_method")):
                assert [ast.literal_eval(one) for one in node.args] in (["spawn"], ["forkserver"]), path
            assert not (isinstance(node, ast.Attribute) and ast.unparse(node) == "os.fork"), path


def test_texts_are_read_and_written_in_a_stated_encoding():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "write_text":
                named = any(keyword.arg == "encoding" for keyword in node.keywords)
                assert named or "/proc/" in ast.unparse(node), f"{path}:{node.lineno}"
