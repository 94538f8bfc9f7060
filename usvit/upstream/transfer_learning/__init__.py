"""Transfer of upstream weights to other images, measured on images that the network was not trained on.

``splits`` opens the images and refuses those that the weights have seen. ``features`` runs the frozen network on them;
``probes`` classifies the features (few-shot, linear, nearest neighbours, retrieval). ``finetune`` trains the network
over a sweep. ``upstream_selection`` compares several upstream networks. ``experiment`` puts the steps together.
"""
