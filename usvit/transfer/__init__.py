"""From upstream weights to other images: what a network has learnt, measured where it was not trained.

``parts`` opens the images and refuses what the weights have seen, ``features`` runs the frozen network over them,
``least_squares`` (few-shot), ``linear`` and ``neighbours`` judge the features, ``finetune`` trains the network over a
sweep, ``select`` compares several upstream networks, ``run`` is the whole.
"""
