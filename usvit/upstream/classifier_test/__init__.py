"""Tests of fixed classifiers on labelled images: nothing is trained, and nothing is chosen.

``classifiers`` resolves the networks with their heads, and ``test_sets`` the images; ``matching`` decides which outputs
compete and which are right. ``inference`` runs a network over a set, once for all of its heads, and ``figures`` turns
the answers into numbers and tables. ``experiment`` puts the steps together.
"""
