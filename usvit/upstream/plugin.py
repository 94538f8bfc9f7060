"""What upstream work adds to usvit."""

from usvit.plugins import CommandEntry, Plugin, RunKind

PLUGIN = Plugin(
    commands={
        "pretrain": CommandEntry(
            "usvit.upstream.cli.pretrain",
            "pretrain",
            "Pre-train a network: supervised, distilled or self-supervised, on one CPU, or on many GPUs with torchrun.",
        ),
        "transfer": CommandEntry(
            "usvit.upstream.cli.transfer",
            "transfer",
            "Transfer upstream weights to other images by a few-shot, linear or nearest-neighbour probe, or by "
            "fine-tuning.",
        ),
        "test": CommandEntry(
            "usvit.upstream.cli.test",
            "test",
            "Test fixed classifiers on labelled images, such as ImageNet, ReaL, ImageNet-V2, -A, -R, -Sketch and "
            "ObjectNet.",
        ),
        "bench": CommandEntry(
            "usvit.upstream.cli.bench",
            "bench",
            "Measure images/s and peak memory of networks with the protocols of the papers.",
            private=False,
        ),
        "shape": CommandEntry(
            "usvit.upstream.cli.shape",
            "app",
            "Find the best depth, width and MLP width for a compute budget (Alabdulmohsin et al. 2023).",
            private=False,
        ),
        "study": CommandEntry(
            "usvit.upstream.cli.study", "app", "Run the runs of a table, pick the best, or measure shift."
        ),
        "data coarse": CommandEntry(
            "usvit.upstream.cli.coarse",
            "coarse",
            "Write the 127 coarse classes of ImageNet-1k (Huh et al. 2016), from which Grafit learns.",
        ),
    },
    panel="Upstream: pre-training and transfer",
    records="usvit.upstream.records",
    run_kinds={
        "pretrain": RunKind(
            "usvit.upstream.pretraining_run.experiment:Pretraining",
            of_folds=False,
            figures="pretrain.json and fold-0/history.csv",
            has_predictions=False,
        ),
        "transfer": RunKind(
            "usvit.upstream.transfer_learning.factory:transfer_of",
            of_folds=False,
            figures="transfer.json and results.csv",
        ),
        "test": RunKind(
            "usvit.upstream.classifier_test.experiment:ClassifierTest",
            of_folds=False,
            figures="test.json and per_class.csv",
            gives_weights=False,
            has_predictions=False,
        ),
    },
    image_sources="usvit.upstream.sources.open:open_named",
    companions={
        "seg_from": "usvit.upstream.segmentation.segmenter:load_segmenter",
        "concepts_from": "usvit.upstream.text_tuning.concept_scorer:load_concepts",
    },
)
