"""Configuration of ``usvit node``: one YAML file, read and checked as a whole before anything listens.

Relative paths are relative to the folder of the file. Nothing outside of the file is looked at here: models, keys,
certificates and ports are checked by ``usvit.node``.
"""

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from usvit.config.scoring import ModelSettings
from usvit.config.sections import Section
from usvit.config.settings_file import PathOfFile
from usvit.node.config.patterns import includes


def _ae_title(title: str) -> str:
    """Return an AE title without its padding (PS3.5, value representation AE)."""
    bare = title.strip(" ")
    if not bare or len(bare) > 16:
        raise ValueError(f"an AE title has 1 to 16 characters, and '{title[:40]}' has {len(bare)}")
    if "\\" in bare or not all(" " <= one <= "~" for one in bare):
        raise ValueError("an AE title is plain ASCII without a backslash or control characters (DICOM PS3.5)")
    return bare


def _network(address: str) -> str:
    try:
        return str(ipaddress.ip_network(address, strict=False))
    except ValueError as error:
        raise ValueError(f"'{address[:60]}' is not an IP address or a network such as 192.168.1.0/24") from error


def _host(host: str) -> str:
    if not host or len(host) > 253 or not re.fullmatch(r"[A-Za-z0-9._:%-]+", host):
        raise ValueError(f"'{host[:60]}' is not a host name or an IP address")
    return host


def _name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise ValueError(f"'{name[:60]}' is not a valid name: use up to 64 letters, digits, '-', '_' and '.'")
    return name


def _allowed(value: Any) -> Any:
    return [{"anyone": True}] if value == "any" else value


_AeTitle = Annotated[str, AfterValidator(_ae_title)]
Host = Annotated[str, AfterValidator(_host)]
_Port = Annotated[int, Field(ge=1, le=65535)]
Name = Annotated[str, AfterValidator(_name)]
Pattern = Annotated[str, Field(min_length=1, max_length=200)]
"""A pattern with ``*`` and ``?``, compared without regard to case."""
Output = Literal["sr", "sc", "gsps"]
DEFAULT_INSTANCE_MB = 1024
"""Largest instance of a node without a receiver, and the default of ``receive.max_instance_mb``."""


class NodeTlsConfig(Section):
    """TLS of the receiver or of one peer."""

    certificate: PathOfFile | None = None
    """Own certificate, as PEM; required for the receiver."""
    private_key: PathOfFile | None = None
    """Key of the certificate, as PEM without a pass phrase."""
    ca: PathOfFile | None = None
    """Certificates of the authorities that sign the other side's certificate. For the receiver: certificates of the
    senders are then required. For a peer: required, since its certificate is always checked."""
    server_name: Host | None = None
    """Of a peer: the name in its certificate, if it is not ``host``."""

    @model_validator(mode="after")
    def _pairs(self) -> "NodeTlsConfig":
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key belong together: give both")
        return self


class AllowedSender(Section):
    """A sender that may connect: the AE title, the address, or both must match."""

    ae_title: _AeTitle | None = None
    """None: any AE title."""
    address: Annotated[str, AfterValidator(_network)] | None = None
    """IP address or network, such as ``192.168.1.0/24``; None: any address."""
    anyone: bool = False
    """Written by ``allow: any``."""

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
        """The addresses; None for all."""
        return None if self.address is None else ipaddress.ip_network(self.address)

    @model_validator(mode="after")
    def _says_something(self) -> "AllowedSender":
        if self.ae_title is None and self.address is None and not self.anyone:
            raise ValueError("an entry of receive.allow needs an ae_title, an address, or both")
        return self


class ReceiveConfig(Section):
    """The application entity that listens for C-ECHO, C-STORE and answers of storage commitment."""

    ae_title: _AeTitle = "USVIT"
    """Own AE title, with which senders must call the node."""
    host: Host = "127.0.0.1"
    """Address to listen on; ``0.0.0.0`` for all networks of the machine."""
    port: _Port = 11112
    """Port to listen on."""
    allow: Annotated[tuple[AllowedSender, ...], BeforeValidator(_allowed), Field(min_length=1)]
    """Who may send. ``any`` allows everybody who reaches the port."""
    tls: NodeTlsConfig | None = None
    """TLS; without it, images and names cross the network as they are."""
    max_associations: Annotated[int, Field(ge=1, le=200)] = 16
    """Number of associations at the same time; further ones are rejected."""
    max_pdu_kb: Annotated[int, Field(ge=4, le=4096)] = 128
    """Largest PDU, in KiB."""
    max_instance_mb: Annotated[int, Field(ge=1, le=100_000)] = DEFAULT_INSTANCE_MB
    """A larger instance is refused, from wherever it comes; an association that sends one is ended."""
    idle_seconds: Annotated[float, Field(gt=0, le=3600)] = 30.0
    """An association is ended after this time without a complete message, and a connection that sends no request."""
    min_bytes_per_second: Annotated[float, Field(ge=0)] = 1000.0
    """A message that arrives more slowly than this over ``idle_seconds`` ends its association."""
    min_free_gb: Annotated[float, Field(ge=0)] = 1.0
    """With less free disk than this, instances are refused with 0xA700 (out of resources) until there is room."""

    @model_validator(mode="after")
    def _has_a_certificate(self) -> "ReceiveConfig":
        if self.tls is not None and (self.tls.certificate is None or self.tls.private_key is None):
            raise ValueError("receive.tls needs certificate and private_key")
        return self


class WatchedFolderConfig(Section):
    """A folder whose DICOM files are taken in, and removed from it."""

    path: PathOfFile
    """The folder; files in folders below it are taken in, too."""
    settle_seconds: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """A file is taken in when it has not changed for this time."""
    keep: bool = False
    """Leave the files where they are; a file is then taken in again only if it changes."""


class CompletionConfig(Section):
    """When a study counts as complete; DICOM has no signal for it."""

    quiet_seconds: Annotated[float, Field(ge=0, le=86400)] = 60.0
    """A study is complete when no image of it has arrived for this time."""
    max_waiting_images: Annotated[int, Field(ge=1)] = 100_000
    """With more images than this not scored yet, further ones are refused with 0xA700 until there are fewer."""


class NodeModelConfig(ModelSettings):
    """A model that stays loaded; its settings mean what they mean for ``usvit score``."""

    path: PathOfFile
    """Folder of a run, of a fold, of an export, or of an ensemble."""
    gpu: Annotated[int, Field(ge=0)] | None = None
    """Number of the GPU that this model uses; models on different GPUs score at the same time."""
    calibration: PathOfFile | None = None
    """File that ``usvit recalibrate`` wrote."""
    seg_from: PathOfFile | None = None
    """Run of ``usvit transfer --how segment`` whose segmenters mark the lesion, instead of the model itself."""
    concepts_from: PathOfFile | None = None
    """Run of ``usvit transfer --how text`` whose text tower scores concepts, which ``scores.csv`` then has."""
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of processes that decode images."""


class RuleConditions(Section):
    """Conditions on the images of a study; all that are given must hold for one image."""

    modality: Pattern | None = None
    """Modality, such as ``US``. Patterns may contain the wildcards ``*`` and ``?``, and ignore case."""
    manufacturer: Pattern | None = None
    """Manufacturer of the scanner."""
    description: Pattern | None = None
    """Of the study or of the series."""
    calling_ae: Pattern | None = None
    """AE title that sent the image; empty for images from folders and archives."""
    body_part: Pattern | None = None
    """BodyPartExamined."""

    def given(self) -> dict[str, str]:
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}


class NodeRule(Section):
    """What happens to a study of which at least one image meets the conditions."""

    name: Name
    """Name in the audit log."""
    when: RuleConditions = RuleConditions()
    """No conditions: every study."""
    leave_alone: bool = False
    """Neither score the study nor send anything."""
    model: str | None = None
    """Name in ``models``."""
    frames: str = "all"
    """``all``, ``middle``, ``every:K`` or ``top:K``."""
    outputs: tuple[Output, ...] = ("sr",)
    """``sr``: a report of the study; ``sc``, ``gsps``: a Secondary Capture and a presentation state of each image."""
    send_to: tuple[str, ...] = ()
    """Names in ``peers``; none: the results stay in the folder."""
    identity: Literal["keep", "pseudonym"] = "keep"
    """``keep``: results belong to the patient's own study. ``pseudonym``: they are de-identified."""
    pictures: bool = False
    """With ``pseudonym``: also draw images without a known tissue region, unless text is found in them."""

    @model_validator(mode="after")
    def _decides(self) -> "NodeRule":
        if self.leave_alone == (self.model is not None):
            raise ValueError(f"the rule '{self.name}' must give either 'model' or 'leave_alone: true'")
        if len(set(self.outputs)) < len(self.outputs) or len(set(self.send_to)) < len(self.send_to):
            raise ValueError(f"the rule '{self.name}' names an output or a peer twice: name each once")
        return self


class PeerConfig(Section):
    """A system to which results are sent: an AE, or an archive that speaks DICOMweb."""

    ae_title: _AeTitle | None = None
    """AE title of the peer."""
    host: Host | None = None
    """Its host name or IP address."""
    port: _Port | None = None
    """Its port."""
    tls: NodeTlsConfig | None = None
    """TLS to an AE."""
    storage_commitment: bool = False
    """Ask the AE to commit itself to what was sent, and send again what it does not have."""
    dicomweb: str | None = None
    """Base address of the DICOMweb service, such as ``https://host/dicom-web``."""
    token_file: PathOfFile | None = None
    """File that holds a bearer token."""
    user_file: PathOfFile | None = None
    """File that holds ``name:password``."""
    ca: PathOfFile | None = None
    """Certificates of the authorities that sign the certificate of the DICOMweb service."""
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 30.0
    """Longest time that an answer may take."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> "PeerConfig":
        if self.dicomweb is None:
            if self.ae_title is None or self.host is None or self.port is None:
                raise ValueError("a peer needs ae_title, host and port, or dicomweb")
            if self.token_file or self.user_file or self.ca:
                raise ValueError("token_file, user_file and ca belong to a peer with dicomweb; an AE has tls")
        else:
            if self.ae_title or self.host or self.port or self.tls or self.storage_commitment:
                raise ValueError("a peer is either an AE (ae_title, host, port, tls) or dicomweb, not both")
            if not re.match(r"https?://[^/\s]+", self.dicomweb):
                raise ValueError("dicomweb is an address such as https://host/dicom-web")
        return self


class SendConfig(Section):
    """Delivery of the results."""

    dry_run: bool = False
    """Score and queue, but send nothing."""
    first_retry_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Time between the first two attempts."""
    longest_retry_minutes: Annotated[float, Field(gt=0)] = 60.0
    """The time between two attempts doubles up to this."""
    give_up_hours: Annotated[float, Field(gt=0)] = 72.0
    """An object that could not be delivered while it was tried for this time is given up, and audited."""
    commitment_minutes: Annotated[float, Field(gt=0)] = 60.0
    """A request for storage commitment is repeated if there is no answer in this time."""


class StatusConfig(Section):
    """The read-only status page."""

    host: Host = "127.0.0.1"
    """Address of the page."""
    port: _Port = 8484
    """Its port."""


class RetentionConfig(Section):
    """How long images and results are kept in the folder."""

    images_days: Annotated[float, Field(ge=0)] = 7.0
    """Images of a study that is done are deleted this long after the last one arrived."""
    results_days: Annotated[float, Field(ge=0)] = 30.0
    """Results are deleted this long after everything was sent."""
    max_gb: Annotated[float, Field(gt=0)] | None = None
    """Above this size, the oldest images of studies that are done are deleted earlier."""


class NodeConfig(Section):
    """The whole configuration of a node."""

    folder: PathOfFile
    """Private folder of the service: images, results, database, audit log."""
    key: PathOfFile | None = None
    """Key of the pseudonyms; None: ``pseudonym.key`` in ``folder``."""
    receive: ReceiveConfig | None = None
    """None: nothing listens, and images come from ``folders`` or ``usvit node pull``."""
    folders: tuple[WatchedFolderConfig, ...] = ()
    """Watched folders."""
    studies: CompletionConfig = CompletionConfig()
    models: Annotated[dict[Name, NodeModelConfig], Field(min_length=1)]
    rules: Annotated[tuple[NodeRule, ...], Field(min_length=1)]
    """The first rule that matches a study decides. No rule matches: the study is left alone, and audited."""
    peers: dict[Name, PeerConfig] = Field(default_factory=dict)
    send: SendConfig = SendConfig()
    status: StatusConfig | None = StatusConfig()
    """``null``: no status page."""
    retention: RetentionConfig = RetentionConfig()

    @property
    def key_path(self) -> Path:
        return self.key or self.folder / "pseudonym.key"

    @property
    def database(self) -> Path:
        return self.folder / "node.sqlite"

    @model_validator(mode="after")
    def _fits_together(self) -> "NodeConfig":
        names = [rule.name for rule in self.rules]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two rules are named '{twice[0]}': give each its own name")
        for rule in self.rules:
            if rule.model is not None and rule.model not in self.models:
                raise ValueError(f"the rule '{rule.name}' names the model '{rule.model}', {_known(self.models)}")
            for peer in rule.send_to:
                if peer not in self.peers:
                    raise ValueError(f"the rule '{rule.name}' sends to '{peer}', {_known(self.peers, 'peers')}")
        for number, rule in enumerate(self.rules):
            for earlier in self.rules[:number]:
                if covers(earlier.when, rule.when):
                    raise ValueError(
                        f"the rule '{rule.name}' can never match, because every study that it describes is decided by "
                        f"the earlier rule '{earlier.name}': move it up, or remove it"
                    )
        if self.receive is not None and self.status is not None and self.receive.port == self.status.port:
            raise ValueError(f"receive.port and status.port are both {self.receive.port}: choose different ports")
        return self


def covers(wide: RuleConditions, narrow: RuleConditions) -> bool:
    """Return True if everything that meets ``narrow`` surely meets ``wide``."""
    given, inner = wide.given(), narrow.given()
    return all(
        set(pattern) == {"*"} or (name in inner and includes(pattern.lower(), inner[name].lower()))
        for name, pattern in given.items()
    )


def _known(names: Mapping[str, Any], what: str = "models") -> str:
    listed = ", ".join(sorted(names)) or "none"
    return f"which is not among {what} ({listed}): correct the name or add it"
