"""``usvit node doctor``: checks a configuration against this machine and its peers, and tells everything that is wrong.

``usvit node serve`` stops at the first mistake, and does not ask peers, which may be down for a while. The doctor goes
through everything. It changes nothing, makes no key, and sends nothing but C-ECHO and an empty query.
"""

import os
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import usvit
from usvit.arguments import checked_arguments
from usvit.errors import UsvitError
from usvit.node.checks import certificate_end, check_peer_files, check_port, check_rules, check_tls
from usvit.node.config.file import load_node_config
from usvit.node.config.settings import NodeConfig, NodeTlsConfig
from usvit.node.database import NodeDatabase
from usvit.node.records import NodeCheckRecord, NodeFinding
from usvit.node.watching.peers import check_peer
from usvit.node.watching.status import read_status
from usvit.pseudonyms import KEY_BYTES, Pseudonyms

_EXPIRES_SOON_DAYS = 30
_CLOCK_SECONDS = 60.0
"""Difference of clocks that is a fault."""


@checked_arguments
def check_node(config: str | Path, *, models: bool = True, peers: bool = True) -> NodeCheckRecord:
    """Check the configuration of a node: ports, AE titles, peers, disk, permissions, models, keys, certificates, clock.

    Args:
        config: the configuration, a YAML file.
        models: load the models, too, which takes seconds for each.
        peers: ask the peers by C-ECHO, or DICOMweb services by a query with at most one answer, which is not read.

    Returns:
        The findings. A mistake in the file itself, such as an unknown key, is the only one, since nothing else can be
        checked before it is corrected.

    Raises:
        No error for a mistake of the user: each is a finding with the level ``fault``.

    Example:
        >>> import usvit
        >>> [one.text for one in usvit.check_node("node.yaml").faults]  # doctest: +SKIP
        []
    """
    checks = _Checks()
    with checks.of("configuration"):
        settings = load_node_config(config)
        checks.ok(f"{Path(config).name} is complete and consistent.")
        _check_all(settings, checks, models=models, peers=peers)
    return NodeCheckRecord(
        usvit_version=usvit.__version__,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        findings=checks.findings,
    )


class _Checks:
    """Collects findings; an error of a check is a fault, and the next check goes on."""

    def __init__(self) -> None:
        self.findings: list[NodeFinding] = []
        self._check = ""

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        before, self._check = self._check, name
        try:
            yield
        except UsvitError as error:
            self.fault(str(error))
        except OSError as error:
            where = "" if error.filename is None else f"{error.filename}: "
            self.fault(f"{where}{os.strerror(error.errno or 0)}. Check the path and its permissions.")
        finally:
            self._check = before

    def ok(self, text: str) -> None:
        self.findings.append(NodeFinding.of(self._check, "ok", text))

    def note(self, text: str) -> None:
        self.findings.append(NodeFinding.of(self._check, "note", text))

    def fault(self, text: str) -> None:
        self.findings.append(NodeFinding.of(self._check, "fault", text))


def _check_all(config: NodeConfig, checks: _Checks, *, models: bool, peers: bool) -> None:
    running = False
    with checks.of("folder"):
        _check_folder(config, checks)
    with checks.of("database"):
        running = _check_database(config, checks)
    with checks.of("disk"):
        _check_disk(config, checks)
    with checks.of("key"):
        _check_key(config, checks)
    with checks.of("rules"):
        check_rules(config)
        checks.ok(f"Each of the {len(config.rules)} rules can match.")
    for number, _ in enumerate(config.folders):
        with checks.of(f"folders.{number}"):
            _check_watched(config, number, checks)
    if config.receive is not None:
        with checks.of("receive"):
            _check_receiver(config, running, checks)
        if config.receive.tls is not None:
            with checks.of("receive.tls"):
                check_tls("receive.tls", config.receive.tls)
                _check_certificate(config.receive.tls, "receive.tls", checks)
    if config.status is not None:
        with checks.of("status"):
            _check_listens(config.status.host, config.status.port, "status", running, checks)
            if not _is_loopback(config.status.host):
                checks.note(
                    "The status page is open to other machines. It shows counts and pseudonyms, and asks for no "
                    "password: set status.host to 127.0.0.1 unless your monitoring needs it."
                )
    clocks = []
    for name, peer in config.peers.items():
        with checks.of(f"peer {name}"):
            check_peer_files(name, peer)
            if peer.tls is not None:
                _check_certificate(peer.tls, f"peers.{name}.tls", checks)
            if peers:
                outputs = {one for rule in config.rules if name in rule.send_to for one in rule.outputs}
                findings, clock = check_peer(name, peer, config, outputs)
                checks.findings += findings
                clocks += [] if clock is None else [(name, clock)]
    with checks.of("clock"):
        _check_clock(config, clocks, checks)
    for name in config.models:
        with checks.of(f"model {name}"):
            _check_model(config, name, checks, load=models)


def _check_folder(config: NodeConfig, checks: _Checks) -> None:
    folder = config.folder
    if not folder.exists():
        above = next(one for one in folder.absolute().parents if one.exists())
        if not os.access(above, os.W_OK | os.X_OK):
            checks.fault(
                f"The folder {folder} does not exist, and you may not make it: write access to {above} is missing."
            )
        else:
            checks.ok(f"{folder} does not exist yet; the service creates it.")
        return
    if not folder.is_dir():
        checks.fault(f"{folder} is not a folder. Correct 'folder', or move the file away.")
    elif os.name == "posix" and folder.stat().st_mode & 0o077:
        checks.fault(
            f"Others on this machine may enter the folder {folder}, which holds images. Run: chmod 700 {folder}"
        )
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        checks.fault(
            f"You may not write into {folder}. Run the doctor as the user of the service, or give it the folder."
        )
    else:
        foreign = [path.name for path in folder.iterdir() if os.name == "posix" and path.stat().st_uid != os.getuid()]
        if foreign and os.getuid() != 0:
            checks.fault(
                f"{len(foreign)} files in {folder} belong to another user, such as {foreign[0]}. Run: chown -R "
                f"{os.getuid()} {folder}"
            )
        else:
            checks.ok(f"{folder} is private and can be written.")


def _check_database(config: NodeConfig, checks: _Checks) -> bool:
    """Check the database, and return whether the service runs."""
    if not config.database.is_file():
        checks.ok("There is no database yet; the service creates it.")
        return False
    status = read_status(config.folder, config)
    database = NodeDatabase(config.database)
    try:
        (answer,) = database.rows("PRAGMA quick_check(1)")[0]
    finally:
        database.close()
    if answer != "ok":
        checks.fault(f"The database {config.database} is damaged. Stop the service, and restore it from a backup.")
    else:
        checks.ok(f"The database is intact; the service {'is running' if status.running else 'is not running'}.")
    unknown = [one.peer for one in status.deliveries if one.peer not in config.peers and one.waiting]
    for peer in unknown:
        checks.fault(f"Results wait for the peer '{peer}', which is not in the configuration. Add it to 'peers' again.")
    for one in status.deliveries:
        if one.gave_up:
            checks.note(f"{one.gave_up} results for '{one.peer}' were given up. Send them with 'usvit node replay'.")
    return status.running


def _check_disk(config: NodeConfig, checks: _Checks) -> None:
    place = next(one for one in (config.folder, *config.folder.absolute().parents) if one.exists())
    usage = shutil.disk_usage(place)
    least = config.receive.min_free_gb if config.receive is not None else 0.0
    free = usage.free / 1e9
    if free < least:
        checks.fault(
            f"{free:.1f} GB are free, and receive.min_free_gb is {least:g}: every image is refused. Make "
            "room, or set a smaller limit."
        )
    elif free < 2 * least:
        checks.note(
            f"{free:.1f} GB are free; images are refused below {least:g} GB. Make room, or lower retention.max_gb."
        )
    else:
        checks.ok(f"{free:.1f} GB of {usage.total / 1e9:.1f} GB are free.")
    most = config.retention.max_gb
    if most is not None and most * 1e9 > usage.total:
        checks.fault(
            f"retention.max_gb is {most:g}, and the disk has only {usage.total / 1e9:.1f} GB: the limit "
            "is never reached. Set a smaller one."
        )


def _check_key(config: NodeConfig, checks: _Checks) -> None:
    if not config.key_path.exists():
        if config.database.is_file():
            checks.fault(
                f"The key {config.key_path} is missing, and the folder has studies that were pseudonymised with it. "
                "Restore it from a backup."
            )
        else:
            checks.ok(f"There is no key at {config.key_path}; the service creates one. Back it up.")
        return
    pseudonyms = Pseudonyms.of_key(config.key_path)
    if pseudonyms.warning is not None:
        checks.fault(pseudonyms.warning)
    elif _is_other_key(config, pseudonyms):
        checks.fault(
            f"The key {config.key_path} is not the one under which the folder {config.folder} was filled: pseudonyms "
            "would change. Restore the old key, or begin with an empty folder."
        )
    else:
        checks.ok(f"{config.key_path} can be used.")


def _is_other_key(config: NodeConfig, pseudonyms: Pseudonyms) -> bool:
    if not config.database.is_file():
        return False
    database = NodeDatabase(config.database)
    try:
        row = database.one("SELECT study_uid, pseudonym FROM studies LIMIT 1")
        return row is not None and pseudonyms.study(row["study_uid"]) != row["pseudonym"]
    finally:
        database.close()


def _check_watched(config: NodeConfig, number: int, checks: _Checks) -> None:
    watched = config.folders[number]
    if not watched.path.is_dir():
        checks.fault(f"The folder {watched.path} does not exist. Make it, or correct folders.{number}.path.")
    elif config.folder.resolve().is_relative_to(watched.path.resolve()):
        checks.fault(f"The folder of the node lies in the watched folder {watched.path}. Choose another place for one.")
    elif not os.access(watched.path, os.R_OK | os.X_OK | (0 if watched.keep else os.W_OK)):
        checks.fault(f"Files in {watched.path} cannot be read and removed. Give access, or set 'keep: true'.")
    else:
        checks.ok(f"{watched.path} can be read.")


def _check_receiver(config: NodeConfig, running: bool, checks: _Checks) -> None:
    receive = config.receive
    assert receive is not None
    _check_listens(receive.host, receive.port, "receive", running, checks)
    if _is_loopback(receive.host):
        elsewhere = [
            str(one.address)
            for one in receive.allow
            if one.network is not None and not one.network.is_loopback and one.network.prefixlen > 0
        ]
        if elsewhere:
            checks.fault(
                f"receive.allow names {elsewhere[0]}, but receive.host {receive.host} is reached from this "
                "machine only. "
                "Set receive.host to the address of a network card, or 0.0.0.0."
            )
        return
    if any(one.anyone for one in receive.allow):
        checks.note("Everybody who reaches the port may send (allow: any). Name the senders in receive.allow.")
    if receive.tls is None:
        checks.note("Images cross the network unencrypted (no receive.tls). Use TLS outside of a closed network.")


def _check_listens(host: str, port: int, section: str, running: bool, checks: _Checks) -> None:
    if running:
        try:
            with socket.create_connection(("127.0.0.1" if host in ("0.0.0.0", "::") else host, port), timeout=5):
                checks.ok(f"The running service listens at {host}:{port}.")
        except OSError:
            checks.fault(
                f"The service runs, but nobody answers at {host}:{port} ({section}). Restart the service if the "
                "configuration was changed; otherwise see its log."
            )
        return
    check_port(section, host, port)
    checks.ok(f"{host}:{port} is free.")


def _check_certificate(tls: NodeTlsConfig, section: str, checks: _Checks) -> None:
    """Tell of a certificate that expires soon, and of a key that other users can read."""
    if tls.certificate is None or tls.private_key is None:
        return
    end = certificate_end(tls.certificate, tls.private_key)
    if end is not None:
        days = (end - time.time()) / 86400
        said = f"The certificate {tls.certificate} ({section}) expires in {days:.0f} days"
        (checks.note if days < _EXPIRES_SOON_DAYS else checks.ok)(
            f"{said}. Get a new one." if days < _EXPIRES_SOON_DAYS else f"{said}."
        )
    if os.name == "posix" and stat.S_IMODE(tls.private_key.stat().st_mode) & 0o077:
        checks.fault(
            f"Others may use the key {tls.private_key} ({section}.private_key). Run: chmod 600 {tls.private_key}"
        )


def _check_clock(config: NodeConfig, clocks: list[tuple[str, float]], checks: _Checks) -> None:
    """Compare the clock with that of peers that report theirs, and with times that cannot lie in the future."""
    for name, difference in clocks:
        if abs(difference) > _CLOCK_SECONDS:
            ahead = "ahead of" if difference > 0 else "behind"
            checks.fault(
                f"The clock is {abs(difference):.0f} seconds {ahead} that of the peer '{name}'. Let both take the time "
                "from one server (NTP)."
            )
    known: list[tuple[str, Callable[[], float]]] = [
        ("usvit was installed", lambda: Path(usvit.__file__).stat().st_mtime),
        ("the audit log was written", lambda: (config.folder / "audit.jsonl").stat().st_mtime),
        ("the last image arrived", lambda: _last_received(config)),
    ]
    late = [
        (name, at) for name, at in ((name, _time_of(told)) for name, told in known) if at > time.time() + _CLOCK_SECONDS
    ]
    for name, at in late:
        when = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
        checks.fault(f"The clock is wrong: according to it, {name} in the future ({when}). Set the clock (NTP).")
    if not late and not any(abs(difference) > _CLOCK_SECONDS for _, difference in clocks):
        compared = f" and with {len(clocks)} peers that report theirs" if clocks else "; no peer reports its time"
        checks.ok(f"It agrees with the times of files{compared}.")


def _time_of(told: Callable[[], float]) -> float:
    try:
        return told()
    except (OSError, UsvitError):
        return 0.0


def _last_received(config: NodeConfig) -> float:
    database = NodeDatabase(config.database)
    try:
        row = database.one("SELECT max(last_at) AS at FROM studies")
        return float(row["at"] or 0.0) if row is not None else 0.0
    finally:
        database.close()


def _check_model(config: NodeConfig, name: str, checks: _Checks, *, load: bool) -> None:
    model = config.models[name]
    if not model.path.exists():
        checks.fault(f"The model {model.path} does not exist. Correct models.{name}.path.")
        return
    if name not in {rule.model for rule in config.rules}:
        checks.note(f"No rule uses the model '{name}'. Remove it, or name it in a rule.")
    if not load:
        return
    from usvit.node.scoring_process import open_scorer

    scorer = open_scorer(model, Pseudonyms(os.urandom(KEY_BYTES)))
    with scorer:
        ensemble = scorer.ensemble
        checks.ok(f"{model.path} loads: classes {', '.join(ensemble.classes)}; positive class {ensemble.positive}.")


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host == "::1" or host.startswith("127.")
