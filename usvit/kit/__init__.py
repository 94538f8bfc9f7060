"""Air-gap kits: a folder with everything that installs usvit on a machine without network."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .build import BuiltKit as BuiltKit
    from .build import build_kit as build_kit
    from .licences import forbidden_licence as forbidden_licence
    from .licences import licences_of as licences_of
    from .settings import KitSettings as KitSettings
    from .use import install_kit as install_kit
    from .use import verify_kit as verify_kit
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
