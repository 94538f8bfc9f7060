"""A text tower that is trained against the features of a locked network (LiT, Zhai et al. 2022).

``byte_pairs`` is the vocabulary, ``tower`` the network, ``losses`` the two losses, ``training`` the loop, ``pairs`` the
texts of images, and ``figures`` what is measured: zero-shot classes and concepts, and retrieval. ``concept_scorer``
scores the concepts of new images.
"""
