"""Ways in: DICOM associations, folders, and queries of archives."""
