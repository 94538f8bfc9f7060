"""Batch scoring: folders of images and DICOM in, tables and coded DICOM out; nothing lost, nothing leaked."""
