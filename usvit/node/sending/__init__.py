"""Sending of results to archives: C-STORE and STOW-RS, a durable queue, and storage commitment."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .answers import PeerUnavailable as PeerUnavailable
    from .answers import bounded_answers as bounded_answers
    from .commitment import on_event_report as on_event_report
    from .delivery_process import run_sender as run_sender
    from .dicomweb import dicomweb_client as dicomweb_client
    from .dicomweb import dicomweb_session as dicomweb_session
    from .dicomweb import http_status as http_status
    from .dicomweb import unavailable as unavailable
    from .send_files import FilesSent as FilesSent
    from .send_files import send_dicom as send_dicom
    from .store_scu import abandon as abandon
    from .store_scu import associate as associate
    from .store_scu import echo as echo
    from .store_scu import end as end
    from .store_scu import tls_of_peer as tls_of_peer
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
