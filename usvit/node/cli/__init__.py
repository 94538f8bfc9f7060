"""Commands of the DICOM service."""
