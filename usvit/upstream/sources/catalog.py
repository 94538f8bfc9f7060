"""Names and one-line descriptions of all sources (``usvit pretrain --list-sources``); imports no torch."""

VTAB_TASKS = {
    "caltech101": 102,
    "cifar": 100,
    "clevr_count": 8,
    "clevr_dist": 6,
    "diabetic_retinopathy": 5,
    "dmlab": 6,
    "dsprites_loc": 16,
    "dsprites_ori": 16,
    "dtd": 47,
    "eurosat": 10,
    "kitti": 4,
    "oxford_flowers102": 102,
    "oxford_iiit_pet": 37,
    "patch_camelyon": 2,
    "resisc45": 45,
    "smallnorb_azi": 18,
    "smallnorb_ele": 9,
    "sun397": 397,
    "svhn": 10,
}
"""VTAB's 19 tasks -> number of classes."""

GENERATED = ("fractals", "phantom")
"""The sources whose images are generated."""
DATA = "data"
"""The source that stands for the images of a data card; in pre-training, the training splits of the folds."""
TORCHVISION = "torchvision:"
"""Prefix of the names of data sets that torchvision reads."""
SOURCES = {
    "fractals": "generated fractal images; a class is one iterated function system (Kataoka et al. 2020)",
    "phantom": "generated images like breast ultrasound; normal, benign, malignant",
    DATA: "the training images of data.dataset, without labels",
    "folder": "your images, one folder per class in source.path",
    "unlabeled": "your images at any depth in source.path, without labels",
    "shards": "WebDataset tar files at source.path: train-{0000..0146}.tar, local or at any address",
    "imagenet": "ImageNet-1k: 1,281,167 + 50,000 photographs, 1,000 classes (Russakovsky et al. 2015)",
    "imagenet_real": "ImageNet-1k's validation images, reassessed: several labels can be right (Beyer et al. 2020)",
    "imagenet_v2": "ImageNet-V2: 10,000 new test photographs in each of three variants (Recht et al. 2019)",
    "imagenet_a": "ImageNet-A: 7,500 photographs of 200 classes that ResNet-50 got wrong (Hendrycks et al. 2021)",
    "imagenet_r": "ImageNet-R: 30,000 paintings, toys and other renditions of 200 classes (Hendrycks et al. 2021)",
    "imagenet_sketch": "ImageNet-Sketch: 50,889 drawings of the 1,000 classes (Wang et al. 2019)",
    "objectnet": "ObjectNet: 50,273 photographs, 113 of whose 313 classes ImageNet-1k has (Barbu et al. 2019)",
    "imagenet21k": "ImageNet-21k, or the processed 21k-P: one folder per class (Deng 2009; Ridnik et al. 2021)",
    "cifar10": "CIFAR-10: 50,000 + 10,000 images of 32 x 32, 10 classes (Krizhevsky 2009)",
    "cifar100": "CIFAR-100: 50,000 + 10,000 images of 32 x 32, 100 classes, 20 superclasses (Krizhevsky 2009)",
    "flowers102": "Oxford Flowers-102: 1,020 + 1,020 + 6,149 photographs, 102 classes (Nilsback & Zisserman 2008)",
    "pets": "Oxford-IIIT Pets: 3,680 + 3,669 photographs, 37 breeds (Parkhi et al. 2012)",
    "cars": "Stanford Cars: 8,144 + 8,041 photographs, 196 models (Krause et al. 2013)",
    "food101": "Food-101: 75,750 + 25,250 photographs, 101 dishes (Bossard et al. 2014)",
    "resisc45": "NWPU-RESISC45: 31,500 aerial images of 256 x 256, 45 scenes (Cheng et al. 2017)",
    "inat18": "iNaturalist 2018: 437,513 + 24,426 photographs, 8,142 species (Van Horn et al. 2018)",
    "inat19": "iNaturalist 2019: 265,213 + 3,030 photographs, 1,010 species (Van Horn et al. 2018)",
    "kitti_distance": "KITTI: 7,481 street scenes, 4 classes of distance to the closest vehicle (Zhai et al. 2019)",
    **{
        f"vtab_{task}": f"VTAB {task}: 1,000 training images (VTAB-1k) or all, {classes} classes (Zhai et al. 2019)"
        for task, classes in VTAB_TASKS.items()
    },
    f"{TORCHVISION}NAME": "data sets that torchvision downloaded: SVHN, DTD, EuroSAT, STL10, FGVCAircraft, SUN397, ...",
}
"""Name -> description."""
