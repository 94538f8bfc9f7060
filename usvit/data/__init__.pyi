from .loading.manifest_dataset import ManifestDataset as ManifestDataset
from .loading.manifest_dataset import load_dataset as load_dataset
