"""The former place of ``usvit.exporting``. MONAI bundles that were exported before name ``usvit.export.bundle``."""
