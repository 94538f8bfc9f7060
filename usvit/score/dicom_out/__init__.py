"""Results as DICOM and pictures, without a trace of whom they are of."""
