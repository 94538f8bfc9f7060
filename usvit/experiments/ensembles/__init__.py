"""Out-of-fold ensembles of runs with the same folds: a run directory that refers to its member runs."""
