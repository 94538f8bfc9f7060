"""Results as DICOM objects and images that contain no data about the patient."""
