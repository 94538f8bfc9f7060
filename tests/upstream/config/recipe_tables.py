"""The tables of the sources, typed from them: what each recipe must hold.

A value after ``CODE |`` is printed by no paper of ours and is from the public code (big_vision, vision_transformer,
deit, mae, unilm/beit, timm's arguments of RSB).
"""

INCEPTION = {  # CODE | vision_transformer and big_vision: inception_crop
    "views.crop": "inception", "views.scale": (0.05, 1.0), "views.ratio": (0.75, 1.33),
}  # fmt: skip
VIT_COMMON = INCEPTION | {  # Dosovitskiy et al. 2021, Table 3's caption and section 4.1
    "train.batch_size": 4096, "optim.warmup_steps": 10_000, "model.image_size": 224, "optim.betas": (0.9, 0.999),
    "model.dropout": 0.1, "model.vit.head": "hidden", "model.weights": "scratch", "objective": "supervised",
    "views.policy": "none", "mix.mixup": 0, "mix.cutmix": 0, "views.repeats": 1, "loss.label_smoothing": 0,
}  # fmt: skip
STEINER = INCEPTION | {  # Steiner et al. 2022, sections 3.3 and 3.4
    "train.batch_size": 4096, "train.epochs": 300, "optim.lr": 1e-3, "optim.betas": (0.9, 0.999),
    "optim.schedule": "cosine", "optim.warmup_steps": 10_000, "optim.clip_norm": 1.0,
    "views.hflip": 0.5, "model.drop_path_schedule": "linear", "model.vit.head": None,
    "views.randaugment": "original", "mix.cutmix": 0, "model.image_size": 224,
}  # fmt: skip
DEIT = {  # thesis, Table 3.9
    "train.batch_size": 1024, "train.epochs": 300, "optim.name": "adamw", "optim.lr": 0.0005, "optim.lr_batch": 512,
    "optim.schedule": "cosine", "optim.weight_decay": 0.05, "optim.warmup_epochs": 5, "loss.label_smoothing": 0.1,
    "model.dropout": 0, "model.drop_path": 0.1, "views.repeats": 3, "optim.clip_norm": None,
    "views.policy": "randaugment", "views.magnitude": 9, "views.magnitude_std": 0.5, "mix.mixup": 0.8,
    "mix.cutmix": 1.0, "views.erasing": 0.25, "views.test_crop": 0.875, "model.drop_path_schedule": "linear",
    "loss.kind": "ce", "views.crop": "rrc", "train.ema": None, "model.image_size": 224,
}  # fmt: skip
TOKEN = {"distill.kind": "token", "distill.teacher": "regnety_16gf", "model.name": "deit_b_distilled"}
HARD = {"distill.kind": "hard", "distill.teacher": "regnety_16gf"}
CODE_384 = {"optim.lr": 5e-6, "optim.min_lr": 5e-6, "optim.weight_decay": 1e-8, "train.batch_size": 512}
CAIT = DEIT | {  # thesis, section 3.7
    "train.epochs": 400, "optim.lr": 0.001, "optim.lr_batch": None, "views.test_crop": 1.0,
    "model.drop_path_schedule": "uniform",
}  # fmt: skip
RESMLP = DEIT | {  # thesis, section 4.3.1 and Table 4.3
    "optim.name": "lamb", "optim.lr": 5e-3, "optim.lr_batch": None, "optim.weight_decay": 0.2, "train.epochs": 400,
    "model.drop_path_schedule": "uniform",
}  # fmt: skip
PATCH = {  # thesis, section 5.2.3
    "optim.name": "lamb", "train.epochs": 400, "train.batch_size": 2048, "optim.lr": 3e-3, "optim.schedule": "cosine",
    "optim.weight_decay": 0.01, "views.policy": "randaugment", "mix.mixup": 0.8, "mix.cutmix": 1.0,
    "views.repeats": 3, "optim.clip_norm": None, "train.ema": None, "views.erasing": 0, "seed": 0,
    "model.drop_path_schedule": "uniform", "model.image_size": 224,
}  # fmt: skip
DEIT3_1K = {  # thesis, Table 6.1, column "ImNet-1k"
    "train.batch_size": 2048, "optim.name": "lamb", "optim.lr": 3e-3, "optim.schedule": "cosine",
    "optim.weight_decay": 0.02, "optim.warmup_epochs": 5, "loss.label_smoothing": 0, "model.dropout": 0,
    "views.repeats": 3, "optim.clip_norm": 1.0, "views.hflip": 0.5, "views.crop": "rrc",
    "views.policy": "three_augment", "mix.mixup": 0.8, "mix.cutmix": 1.0, "views.erasing": 0,
    "views.color_jitter": 0.3, "views.test_crop": 1.0, "loss.kind": "bce", "train.epochs": 400,
    "model.drop_path_schedule": "uniform", "loss.bce_threshold": 0,
}  # fmt: skip
DEIT3_21K = DEIT3_1K | {  # Table 6.1, column "ImNet-21k, Pretrain."
    "loss.label_smoothing": 0.1, "views.repeats": 1, "views.crop": "src", "mix.mixup": 0, "loss.kind": "ce",
    "loss.bce_threshold": None, "train.epochs": 90,
}  # fmt: skip
LONG = {"train.epochs": 800, "optim.weight_decay": 0.05}  # thesis, section 6.4
FIXRES = {  # thesis, section 6.3.6; CODE | optimiser, augmentation
    "optim.lr": 1e-5, "train.batch_size": 512, "train.epochs": 20, "optim.weight_decay": 0.1, "views.repeats": 1,
    "optim.name": "adamw", "views.magnitude": 9, "views.magnitude_std": 0.5, "mix.mixup": 0.8, "mix.cutmix": 1.0,
    "views.erasing": 0, "loss.kind": "ce", "loss.label_smoothing": 0.1, "optim.warmup_epochs": 5,
    "views.test_crop": 1.0,
}  # fmt: skip
A2 = {  # thesis, Table 6.1, column "Wightman et al."; CODE | mixup, threshold, stochastic depth
    "train.batch_size": 2048, "optim.name": "lamb", "optim.lr": 5e-3, "optim.schedule": "cosine",
    "optim.weight_decay": 0.02, "optim.warmup_epochs": 5, "loss.label_smoothing": 0, "views.repeats": 3,
    "optim.clip_norm": 1.0, "views.crop": "rrc", "views.policy": "randaugment", "views.magnitude": 7,
    "views.magnitude_std": 0.5, "mix.cutmix": 1.0, "views.erasing": 0, "views.color_jitter": 0,
    "views.test_crop": 0.95, "loss.kind": "bce", "train.epochs": 300, "mix.mixup": 0.1, "loss.bce_threshold": 0.2,
    "model.drop_path": 0.05,
}  # fmt: skip
THREE = A2 | {"optim.lr": 3e-3, "model.drop_path": 0.1, "model.vit.layer_scale": None}  # section 2.2, ViT-B
MAE = {  # CODE | PRETRAIN.md, main_pretrain.py
    "objective": "mae", "train.batch_size": 4096, "train.epochs": 800, "optim.name": "adamw", "optim.lr": 1.5e-4,
    "optim.lr_batch": 256, "optim.betas": (0.9, 0.95), "optim.weight_decay": 0.05, "optim.warmup_epochs": 40,
    "mae.mask": 0.75, "mae.decoder_width": 512, "mae.decoder_depth": 8, "mae.decoder_heads": 16,
    "mae.norm_pixels": True, "views.scale": (0.2, 1.0), "views.policy": "none", "model.vit.position": "sincos_2d",
}  # fmt: skip
FINETUNED = {  # CODE | both MAE's and BEiT's fine-tuning
    "train.batch_size": 1024, "train.epochs": 100, "optim.name": "adamw", "optim.betas": (0.9, 0.999),
    "optim.weight_decay": 0.05, "optim.layer_decay": 0.65, "model.drop_path": 0.1, "views.magnitude": 9,
    "views.magnitude_std": 0.5, "views.erasing": 0.25, "mix.mixup": 0.8, "mix.cutmix": 1.0,
    "loss.label_smoothing": 0.1, "model.vit.pool": "avg",
}  # fmt: skip
BEIT = {  # CODE | README.md
    "objective": "beit", "train.batch_size": 2048, "train.epochs": 800, "optim.lr": 1.5e-3,
    "optim.warmup_epochs": 10, "optim.weight_decay": 0.05, "optim.clip_norm": 3.0, "model.drop_path": 0.1,
    "model.vit.layer_scale": 0.1, "beit.mask": 0.3827, "beit.min_block": 16, "views.color_jitter": 0.4,
    "optim.min_lr": 1e-5,
}  # fmt: skip
DINO = {  # thesis, section 4.3.2: 300 epochs, ImageNet-1k; CODE | README.md "Boosting", main_dino.py
    "objective": "dino", "source.name": "imagenet", "train.epochs": 300, "train.batch_size": 16 * 64,
    "model.name": "vit_s16", "model.image_size": 224, "model.drop_path": 0.1, "model.drop_path_schedule": "linear",
    "optim.name": "adamw", "optim.lr": 5e-4, "optim.lr_batch": 256, "optim.warmup_epochs": 10,
    "optim.schedule": "cosine", "optim.weight_decay": 0.04, "optim.weight_decay_end": 0.4, "optim.clip_norm": 3.0,
    "optim.clip_each": True, "views.crop": "rrc", "views.scale": (0.4, 1.0), "views.local_scale": (0.05, 0.4),
    "views.local_count": 8, "views.local_size": 96, "views.count": 2, "views.policy": "dino", "views.hflip": 0.5,
    "views.interpolation": "bicubic", "dino.hidden": 2048, "dino.bottleneck": 256, "dino.outputs": 65_536,
    "dino.norm_last_layer": False, "dino.freeze_epochs": 1, "dino.student_temperature": 0.1,
    "dino.teacher_temperature": 0.07, "dino.teacher_temperature_start": 0.04, "dino.teacher_warmup_epochs": 30,
    "dino.teacher_decay": 0.996, "dino.center_decay": 0.9,
}  # fmt: skip
GRAFIT = {  # thesis, sections 2.3, 2.4.3 and 2.5.1
    "objective": "grafit", "optim.name": "sgd", "optim.nesterov": True, "optim.schedule": "cosine",
    "optim.lr": 0.1, "optim.lr_batch": 256, "train.epochs": 600, "train.batch_size": 1024, "grafit.sigma": 0.05,
    "grafit.projector": "mlp", "grafit.width": 256, "grafit.instance": 1, "grafit.knn": 1, "views.crop": "rrc",
    "views.policy": "randaugment", "views.count": 4, "model.image_size": 224, "model.name": "resnet50",
    "source.name": "imagenet",
}  # fmt: skip

TABLES = {
    # Dosovitskiy et al. 2021, Table 3, rows "ViT-* ImageNet" and "ImageNet-21k"
    "vit_i1k": VIT_COMMON | {"train.epochs": 300, "optim.lr": 3e-3, "optim.schedule": "cosine",
                             "optim.weight_decay": 0.3, "optim.clip_norm": 1.0, "source.name": "imagenet"},
    "vit_i21k": VIT_COMMON | {"train.epochs": 90, "optim.lr": 1e-3, "optim.schedule": "linear",
                              "optim.weight_decay": 0.03, "source.name": "imagenet21k"},
    # Dosovitskiy et al. 2021, Table 3, rows "JFT-300M"
    "vit_jft": VIT_COMMON | {"train.epochs": 7, "optim.lr": 8e-4, "optim.schedule": "linear", "optim.clip_norm": None,
                             "optim.weight_decay": 0.1, "model.dropout": 0},
    "vit_ablation": VIT_COMMON | {"train.epochs": 7, "optim.lr": 8e-4, "optim.schedule": "linear",
                                  "optim.weight_decay": 0.1, "model.dropout": 0, "model.name": "vit_b16"},
    "augreg_i1k": STEINER | {"source.name": "imagenet", "source.val_share": 0.01},
    "augreg_i21k": STEINER | {"source.name": "imagenet21k"},
    "deit": DEIT | {"distill.kind": "none"},
    # thesis, section 3.4.4: 7200 epochs, images of 224
    "deit_cifar10": DEIT | {"distill.kind": "none", "train.epochs": 7200, "source.name": "cifar10"},
    "deit_ablation": DEIT | {"distill.kind": "none", "model.name": "deit_b"},
    "deit_distilled": DEIT | TOKEN,
    "deit_1000ep": DEIT | TOKEN | {"train.epochs": 1000},
    # thesis, section 3.4.5: 25 epochs, the augmentation of training
    "deit_384": DEIT | CODE_384 | {"train.epochs": 25, "model.image_size": 384},
    "cait": CAIT,
    # thesis, Tables 3.13 and 3.20
    "cait_ablation": DEIT | {"distill.kind": "none", "model.name": "deit_s"},
    "cait_distilled": CAIT | HARD,
    "cait_384": CAIT | CODE_384 | {"train.epochs": 25, "model.image_size": 384, "optim.lr_batch": 512},
    "cait_448": CAIT | CODE_384 | HARD | {"train.epochs": 25, "model.image_size": 448, "optim.lr_batch": 512,
                                          "model.drop_path": 0.4},
    "resmlp": RESMLP,
    "resmlp_distilled": RESMLP | HARD,
    "resmlp_i21k": RESMLP | {"train.epochs": 60, "source.name": "imagenet21k", "views.repeats": 1},
    # thesis, Table 4.3: SGD, 90 epochs, waterfall
    "resmlp_old_fashioned": {"optim.name": "sgd", "train.epochs": 90, "optim.schedule": "step", "views.policy": "none",
                             "mix.mixup": 0, "mix.cutmix": 0, "loss.label_smoothing": 0, "model.drop_path": 0},
    "patchconvnet_i1k": PATCH | {"model.drop_path": 0.15},
    "patchconvnet_i21k": PATCH | {"train.epochs": 90, "views.repeats": 1, "source.name": "imagenet21k"},
    "patchconvnet_i21k_i1k": PATCH | {"train.epochs": 100, "train.batch_size": 1024, "optim.lr": 5e-4,
                                      "views.repeats": 1, "model.drop_path": 0.05},
    "patchconvnet_highres": PATCH | {"train.epochs": 10, "train.batch_size": 1024, "optim.lr": 1e-5,
                                     "views.repeats": 1, "model.drop_path": 0.05, "model.image_size": 384},
    # Alabdulmohsin et al. 2023, section 5.5; CODE | big_vision, configs/proj/flexivit/i1k_deit3_distill.py
    "sovit_flexi": {"train.epochs": 300, "source.name": "imagenet", "model.name": "sovit_400m_14",
                    "model.image_size": 240, "flexi.patches": (8, 10, 12, 15, 16, 20, 24, 30, 40, 48),
                    "flexi.kernel": 32, "flexi.grid": 7, "train.batch_size": 1024, "optim.lr": 1e-4,
                    "optim.weight_decay": 1e-5 / 1e-4, "optim.warmup_steps": 5000, "optim.clip_norm": 1.0,
                    "optim.momentum_dtype": "bfloat16", "mix.mixup": 1.0, "views.crop": "inception",
                    "views.scale": (0.05, 1.0), "views.ratio": (0.75, 1.33), "views.test_crop": 0.882353},
    "deit3_i1k": DEIT3_1K | {"model.drop_path": 0.1, "model.image_size": 224},
    "deit3_ablation": DEIT3_1K | {"model.name": "vit_b16", "model.drop_path": 0.1, "model.vit.layer_scale": 1e-4,
                                  "model.vit.class_position": False},
    "deit3_i1k_800ep": DEIT3_1K | LONG | {"model.drop_path": 0.2},
    "deit3_lowres": DEIT3_1K | LONG | {"model.drop_path": 0.2, "model.image_size": 192},
    "deit3_fixres": FIXRES | {"optim.min_lr": 1e-5, "model.image_size": 224, "model.drop_path": 0.2},
    "deit3_i21k": DEIT3_21K | {"source.name": "imagenet21k"},
    "deit3_i21k_ablation": DEIT3_21K | {"source.name": "imagenet21k", "model.name": "vit_b16",
                                        "model.vit.layer_scale": 1e-4, "model.vit.class_position": False, "seed": 0},
    # Table 6.1, column "Finetune": the rate; section 6.3.2.1: 50 epochs
    "deit3_i21k_i1k": DEIT3_21K | {"optim.lr": 3e-4, "train.epochs": 50, "source.name": "imagenet"},
    "rsb_a2": A2 | {"model.name": "resnet50"},
    "three_things": THREE,
    "three_things_ls": THREE | {"train.epochs": 400, "model.vit.layer_scale": 0.1},
    "three_things_384": FIXRES | {"optim.min_lr": 1e-5, "model.image_size": 384, "model.tune": "attn"},
    "mae": MAE,
    "mae_hmlp": MAE | {"model.name": "vit_b16_hmlp"},
    "mae_finetune": FINETUNED | {"optim.lr": 5e-4, "optim.lr_batch": 256, "optim.warmup_epochs": 5},
    "beit_tokenizer": {"objective": "tokenizer", "tokenizer.vocabulary": 8192, "tokenizer.patch": 16},
    "beit": BEIT,
    # Three things, Table 7: 300 epochs
    "beit_hmlp": BEIT | {"train.epochs": 300, "model.name": "vit_b16_hmlp"},
    "beit_finetune": FINETUNED | {"optim.lr": 4e-3, "optim.warmup_epochs": 20, "optim.min_lr": 1e-6},
    # Dosovitskiy et al. 2021, appendix B.1.2
    "masked_patch": {"objective": "masked_patch", "masked_patch.corrupted": 0.5, "masked_patch.replaced": 0.8,
                     "masked_patch.swapped": 0.1, "masked_patch.bits": 3, "optim.lr": 2e-4,
                     "optim.warmup_steps": 10_000, "optim.schedule": "cosine", "train.batch_size": 4096,
                     "train.steps": 100_000},
    # Dosovitskiy et al. 2021, Table 4, row "ImageNet"
    "masked_patch_finetune": {"train.steps": 20_000, "train.batch_size": 512, "optim.name": "sgd",
                              "optim.momentum": 0.9, "optim.weight_decay": 0, "optim.clip_norm": 1.0,
                              "optim.schedule": "cosine", "model.image_size": 384, "source.val_share": 0.01},
    "dino": DINO,
    "grafit": GRAFIT,
    "grafit_fc": GRAFIT | {"grafit.projector": "linear", "grafit.width": 128},
    "grafit_cifar100": GRAFIT | {"views.count": 8, "model.image_size": 32, "source.name": "cifar100",
                                 "source.coarse": "superclass"},
    # thesis, sections 2.4.2 and 2.4.3
    "grafit_baseline": {key: value for key, value in GRAFIT.items() if not key.startswith("grafit.")}
    | {"objective": "supervised", "views.count": 1, "loss.kind": "ce", "mix.mixup": 0, "mix.cutmix": 0},
    "snca_plus": GRAFIT | {"grafit.instance": 0, "views.count": 1},
    "snca": GRAFIT | {"grafit.instance": 0, "views.count": 1, "grafit.projector": "linear", "grafit.width": 128},
    "clusterfit_plus": {key: value for key, value in GRAFIT.items() if not key.startswith("grafit.")}
    | {"objective": "supervised", "views.count": 1, "loss.kind": "ce", "source.val": None},
    # thesis, Table 2.7; section 2.2; section 2.5.3
    "grafit_ablation": GRAFIT | {"views.count": 8, "model.image_size": 32, "source.name": "cifar100",
                                 "source.coarse": "superclass"},
    "grafit_granularity": {"model.name": "timm:resnet18", "source.name": "cifar100", "source.coarse": "superclass",
                           "grafit.cross_entropy": 1, "grafit.triplet": 1, "grafit.knn": 0, "grafit.instance": 0,
                           "grafit.projector": "none", "model.image_size": 32},
    "grafit_inat": GRAFIT | {"source.name": "inat18", "source.coarse": None},
    # Ours
    "fractals": {"source.name": "fractals", "model.name": "vit_ti16", "objective": "supervised"},
    "mae_phantom": {"source.name": "phantom+data", "model.name": "vit_ti16", "objective": "mae", "mae.mask": 0.75},
    "phantom_signs": {"source.name": "phantom", "model.name": "usvit_small", "objective": "signs"},
}  # fmt: skip
"""Recipe -> setting -> value."""

DROP_PATH = {
    # thesis, Table 3.16
    "cait": {"cait_xxs24": 0.05, "cait_xxs36": 0.1, "cait_xs24": 0.05, "cait_xs36": 0.1, "cait_s24": 0.1,
             "cait_s36": 0.2, "cait_s48": 0.3, "cait_m24": 0.2, "cait_m36": 0.3, "cait_m48": 0.4},
    # thesis, Table 5.8
    "patchconvnet_i1k": {"patchconvnet_s20": 0.0, "patchconvnet_s36": 0.05, "patchconvnet_s60": 0.15,
                         "patchconvnet_s120": 0.2, "patchconvnet_b36": 0.2, "patchconvnet_b60": 0.3,
                         "patchconvnet_b120": 0.4},
    # the same less 0.1 (section 5.3.4)
    "patchconvnet_highres": {"patchconvnet_s20": 0.0, "patchconvnet_s36": 0.0, "patchconvnet_s60": 0.05,
                             "patchconvnet_s120": 0.1, "patchconvnet_b36": 0.1, "patchconvnet_b60": 0.2,
                             "patchconvnet_b120": 0.3},
    # thesis, Table 6.14
    "deit3_i1k": {"deit3_ti16": 0.0, "deit3_s16": 0.0, "deit3_b16": 0.1, "deit3_l16": 0.4, "deit3_h14": 0.5},
    "deit3_i21k": {"deit3_ti16": 0.0, "deit3_s16": 0.0, "deit3_b16": 0.1, "deit3_l16": 0.3, "deit3_h14": 0.5},
    # 0.05 more for every 200 epochs above 400 (section 6.4)
    "deit3_i1k_800ep": {"deit3_s16": 0.1, "deit3_b16": 0.2, "deit3_l16": 0.5, "deit3_h14": 0.6},
    "deit3_lowres": {"deit3_b16": 0.2, "deit3_l16": 0.5, "deit3_h14": 0.6},
    # CODE
    "deit3_fixres": {"deit3_s16": 0.0, "deit3_b16": 0.2, "deit3_l16": 0.45, "deit3_h14": 0.55},
    "deit3_i21k_i1k": {"deit3_s16": 0.05, "deit3_b16": 0.15, "deit3_l16": 0.4, "deit3_h14": 0.45},
    "mae_finetune": {"vit_b16": 0.1, "vit_l16": 0.2, "vit_h14": 0.3},
    # Three things, section 2.2
    "three_things": {"vit_ti16": 0.0, "vit_s16": 0.05, "vit_b16": 0.1, "vit_l16": 0.4},
}  # fmt: skip
"""Recipe -> model -> stochastic depth."""
DROP_PATH["cait_384"] = DROP_PATH["cait_distilled"] = DROP_PATH["cait"]
DROP_PATH["patchconvnet_i21k_i1k"] = DROP_PATH["patchconvnet_highres"]
DROP_PATH["patchconvnet_i21k"] = DROP_PATH["patchconvnet_i1k"]
DROP_PATH["three_things_ls"] = DROP_PATH["three_things"]

OTHER_SIZES = {
    # CODE | main_dino.py: help of norm_last_layer and of global_crops_scale; README.md, ResNet-50
    ("dino", "vit_b16", "dino.norm_last_layer"): True,
    ("dino", "resmlp_s12", "views.local_count"): 0,
    ("dino", "resmlp_s24", "views.scale"): (0.14, 1.0),
    ("dino", "resnet50", "optim.name"): "sgd",
    ("dino", "resnet50", "optim.lr"): 0.03,
    ("dino", "resnet50", "optim.weight_decay"): 1e-4,
    ("dino", "resnet50", "optim.weight_decay_end"): None,
    ("dino", "resnet50", "views.scale"): (0.14, 1.0),
    ("dino", "resnet50", "views.local_scale"): (0.05, 0.14),
    ("dino", "resnet50", "dino.teacher_temperature"): 0.04,
    ("dino", "resnet50", "dino.teacher_warmup_epochs"): 0,
    ("dino", "resnet50", "train.batch_size"): 512,
    # thesis, section 5.2.3: 0.01 for S models and 0.05 for wider ones
    ("patchconvnet_i1k", "patchconvnet_s120", "optim.weight_decay"): 0.01,
    ("patchconvnet_i1k", "patchconvnet_b60", "optim.weight_decay"): 0.05,
    ("patchconvnet_i21k", "patchconvnet_b60", "optim.weight_decay"): 0.01,
    # Three things, section 2.2
    ("three_things", "vit_ti16", "optim.lr"): 4e-3,
    ("three_things", "vit_s16", "optim.lr"): 4e-3,
    ("three_things", "vit_b16", "optim.lr"): 3e-3,
    ("three_things", "vit_l16", "optim.lr"): 3e-3,
    # Dosovitskiy et al. 2021, Table 3, rows "JFT-300M"
    ("vit_jft", "vit_b32", "optim.lr"): 8e-4,
    ("vit_jft", "vit_l32", "optim.lr"): 6e-4,
    ("vit_jft", "vit_l16", "optim.lr"): 4e-4,
    ("vit_jft", "vit_h14", "optim.lr"): 3e-4,
    ("vit_jft", "vit_h14", "train.epochs"): 14,
    ("vit_jft", "bit_r50x1", "optim.lr"): 1e-3,
    ("vit_jft", "bit_r50x2", "optim.lr"): 1e-3,
    ("vit_jft", "bit_r101x1", "optim.lr"): 8e-4,
    ("vit_jft", "bit_r152x1", "optim.lr"): 6e-4,
    ("vit_jft", "bit_r152x2", "optim.lr"): 6e-4,
    ("vit_jft", "r50_b16", "optim.lr"): 8e-4,
    ("vit_jft", "r50_b32", "optim.lr"): 8e-4,
    ("vit_jft", "r50_l32", "optim.lr"): 2e-4,
    ("vit_jft", "r50_l16", "optim.lr"): 4e-4,
    # thesis, Table 6.14
    ("deit3_ablation", "vit_s16", "model.drop_path"): 0.0,
    ("deit3_ablation", "vit_l16", "model.drop_path"): 0.4,
    ("deit3_ablation", "resnet50", "model.vit.layer_scale"): None,
    ("deit3_i21k_ablation", "vit_s16", "model.drop_path"): 0.0,
    ("deit3_i21k_ablation", "vit_l16", "model.drop_path"): 0.3,
    # thesis, Table 6.6
    ("deit3_lowres", "deit3_l16", "model.image_size"): 192,
    ("deit3_lowres", "deit3_h14", "model.image_size"): 154,
    # CODE
    ("mae_finetune", "vit_l16", "optim.lr"): 1e-3,
    ("mae_finetune", "vit_l16", "optim.layer_decay"): 0.75,
    ("mae_finetune", "vit_h14", "train.epochs"): 50,
    ("beit", "vit_l16", "model.vit.layer_scale"): 1e-5,
    ("beit_finetune", "vit_l16", "optim.warmup_epochs"): 5,
    ("beit_finetune", "vit_l16", "train.epochs"): 50,
}

# thesis, Tables 3.13 and 3.20 and section 3.6.3: what differs from DeiT-S
_S36 = {"model.vit.heads": 8, "model.vit.attention": "talking", "model.vit.depth": 36}
_SCALED = _S36 | {"model.vit.layer_scale": 1e-6, "model.drop_path": 0.2, "model.drop_path_schedule": "uniform"}
_CAIT_S36 = _SCALED | {"model.vit.class_layers": 2, "model.vit.class_position": False}
CAIT_ABLATION = {
    "none": {},
    "average": {"model.vit.pool": "avg"},
    **{f"late_{layer}": {"model.vit.class_at": layer} for layer in (2, 4, 8, 10, 11)},
    **{f"sa{sa}_ca{12 - sa}": {"model.vit.depth": sa, "model.vit.class_layers": 12 - sa} for sa in (9, 10, 11)},
    **{f"sa12_ca{ca}": {"model.vit.class_layers": ca} for ca in (1, 2, 3)},
    "heads_8": {"model.vit.heads": 8},
    "talking_heads": {"model.vit.heads": 8, "model.vit.attention": "talking"},
    "depth_36": _S36,
    "layer_scale": _S36 | {"model.vit.layer_scale": 1e-6},
    "stochastic_depth": _SCALED,
    "class_attention": _CAIT_S36,
    "epochs_400": _CAIT_S36 | {"train.epochs": 400},
    "patches_as_keys": _CAIT_S36 | {"train.epochs": 400, "model.vit.class_keys": "patches"},
    "no_class_layer_scale": _CAIT_S36 | {"train.epochs": 400, "model.vit.class_layer_scale": False},
}

ABLATION = {
    # thesis, Table 3.8, from top to bottom, and Table 3.3: what differs from Table 3.9
    "none": {},
    "sgd": {"optim.name": "sgd"},
    "no_randaugment": {"views.policy": "none"},
    "autoaugment": {"views.policy": "autoaugment"},
    "no_mixup": {"mix.mixup": 0},
    "no_cutmix": {"mix.cutmix": 0},
    "no_mix": {"mix.mixup": 0, "mix.cutmix": 0},
    "no_erasing": {"views.erasing": 0},
    "no_stochastic_depth": {"model.drop_path": 0},
    "no_repeats": {"views.repeats": 1},
    "dropout": {"model.dropout": 0.1},
    "averaged": {"train.ema": 0.99996},
    "soft": {"distill.kind": "soft", "distill.temperature": 3.0, "distill.balance": 0.1,
             "distill.teacher": "regnety_16gf"},
    "hard": {"distill.kind": "hard", "distill.teacher": "regnety_16gf"},
    # thesis, Table 3.21
    **{f"heads{heads}": {"model.vit.heads": heads} for heads in (1, 2, 3, 6, 8, 12, 16, 24)},
}  # fmt: skip

_NO_LAYER_SCALE = {"model.vit.layer_scale": None}
_RA = {"views.policy": "randaugment", "views.magnitude": 7, "views.magnitude_std": 0.5, "views.color_jitter": 0}
_THREE = {"views.policy": "three_augment", "views.three_augment": ("gray", "solarize", "blur")}
DEIT3_ABLATION = {
    # thesis, Tables 6.2, 6.3 and 6.4
    "three-augment": _THREE,
    "jitter": {"views.policy": "none", "views.color_jitter": 0.3},
    "gray": {"views.policy": "three_augment", "views.three_augment": ("gray",)},
    "gray-blur": {"views.policy": "three_augment", "views.three_augment": ("gray", "blur")},
    "no-jitter": _THREE | {"views.color_jitter": 0},
    "autoaugment": {"views.policy": "autoaugment", "views.color_jitter": 0},
    "randaugment": _RA,
    "trivialaugment": {"views.policy": "trivialaugment", "views.color_jitter": 0},
    "ce-no-ls-ra-300ep": _RA | _NO_LAYER_SCALE | {"train.epochs": 300, "loss.kind": "ce", "loss.label_smoothing": 0.1,
                                                  "loss.bce_threshold": None},
    "bce-no-ls-ra-300ep": _RA | _NO_LAYER_SCALE | {"train.epochs": 300},
    "bce-ls-ra-300ep": _RA | {"train.epochs": 300},
    "bce-no-ls-ra-400ep": _RA | _NO_LAYER_SCALE,
}  # fmt: skip
"""Cell -> what differs from ``TABLES["deit3_ablation"]``."""

DEIT3_I21K_ABLATION = {
    # thesis, Table 6.5, from top to bottom
    "rrc-no-ls-mixup-ra": _RA | _NO_LAYER_SCALE | {"views.crop": "rrc", "mix.mixup": 0.8},
    "src-no-ls-mixup-ra": _RA | _NO_LAYER_SCALE | {"mix.mixup": 0.8},
    "src-ls-mixup-ra": _RA | {"mix.mixup": 0.8},
    "src-ls-ra": _RA,
    "src-ls-3a": _THREE,
    "src-ls-3a-240ep": _THREE | {"train.epochs": 240},
}
"""Cell -> what differs from ``TABLES["deit3_i21k_ablation"]``."""

_CENTRE = {"depth": 8, "width": 1024, "mlp": 2048, "patch": 32}
VIT_SHAPES = {
    # Dosovitskiy et al. 2021, appendix D.2: the centre, and depths of 16 and 64; the other values are chosen
    "shape": {},
    **{f"depth{depth}": {"depth": depth} for depth in (2, 4, 16, 32, 64)},
    **{f"width{width}": {"width": width} for width in (256, 512, 2048)},
    **{f"mlp{mlp}": {"mlp": mlp} for mlp in (512, 1024, 4096, 8192)},
    **{f"patch{patch}": {"patch": patch} for patch in (8, 16, 56)},
    "all-half": {"depth": 4, "width": 512, "mlp": 1024},
    "all-double": {"depth": 16, "width": 2048, "mlp": 4096},
}
VIT_SHAPES = {cell: _CENTRE | changed for cell, changed in VIT_SHAPES.items()}
"""Cell of ``vit_ablation`` -> shape."""

VIT_POSITIONS = {
    # Dosovitskiy et al. 2021, Table 8: position, where it is added, 5-shot accuracy in %
    "none": ("none", None, 61.382), "relative": ("relative", None, 64.032),
    "learned": ("learned", "stem", 64.206), "learned-layers": ("learned", "layers", 63.964),
    "learned-shared": ("learned", "shared", 64.292), "learned_2d": ("learned_2d", "stem", 64.001),
    "learned_2d-layers": ("learned_2d", "layers", 64.046), "learned_2d-shared": ("learned_2d", "shared", 64.022),
}  # fmt: skip

TRANSFER = {
    # Dosovitskiy et al. 2021, Table 4: steps, base rates; appendix B.1.1: the development set
    "vit": {
        "imagenet": (20_000, [0.003, 0.01, 0.03, 0.06], 0.01),
        "cifar100": (10_000, [0.001, 0.003, 0.01, 0.03], 0.02),
        "cifar10": (10_000, [0.001, 0.003, 0.01, 0.03], 0.02),
        "pets": (500, [0.001, 0.003, 0.01, 0.03], 0.1),
        "flowers102": (500, [0.001, 0.003, 0.01, 0.03], 0.1),
    },
    # CODE | BiT's hyper-rule: steps, warm-up, where the rate falls, mixup, image size (before the crop: 512 and 160)
    "bit": {
        "imagenet": (20_000, 500, (6_000, 12_000, 18_000), 0.1, 480),
        "cifar10": (10_000, 500, (3_000, 6_000, 9_000), 0.1, 128),
        "cifar100": (10_000, 500, (3_000, 6_000, 9_000), 0.1, 128),
        "pets": (500, 100, (200, 300, 400), 0.0, 480),
        "flowers102": (500, 100, (200, 300, 400), 0.0, 480),
    },
    # Steiner et al. 2022, appendix A: epochs, rates, weight decays
    "augreg_scratch": {
        "pets": ([1_000, 3_000, 10_000, 30_000, 300_000], [1e-4, 3e-4, 1e-3, 3e-3], [1e-5, 3e-5, 1e-4, 3e-4]),
        "resisc45": ([75, 250, 750, 2_500, 7_500], [1e-4, 3e-4, 1e-3, 3e-3], [1e-5, 3e-5, 1e-4, 3e-4]),
    },
    "augreg_scratch_b16": {
        "pets": ([1_000, 3_000, 10_000], [3e-4, 1e-3], [3e-5, 1e-4]),
        "resisc45": ([75, 250, 750, 2_500, 7_500], [1e-3], [1e-4, 3e-4]),
    },
    # Steiner et al. 2022, Table 4: rates, (total, warm-up) steps
    "augreg": {
        "imagenet": ([0.01, 0.03], [(20_000, 500)]),
        "pets": ([1e-3, 3e-3, 0.01], [(500, 100), (2_500, 200)]),
        "kitti_distance": ([1e-3, 3e-3, 0.01], [(500, 100), (2_500, 200)]),
        "cifar100": ([1e-3, 3e-3, 0.01], [(2_500, 200), (10_000, 500)]),
        "resisc45": ([1e-3, 3e-3, 0.01], [(2_500, 200), (10_000, 500)]),
    },
    # thesis, section 3.7.1.3: what the rate of training is divided by, epochs
    "thesis": {
        "cifar10": (100, 1000), "cifar100": (100, 1000), "flowers102": (10, 1000), "cars": (10, 1000),
        "inat18": (10, 360), "inat19": (10, 360),
    },
    # thesis, section 2.5.4: epochs of Tables 2.9 and 2.10
    "grafit": {"flowers102": (240, 1000), "cars": (240, 1000), "food101": (240, 300), "inat18": (240, 300),
               "inat19": (240, 300)},
}  # fmt: skip
