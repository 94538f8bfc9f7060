"""Pages of upstream trainings, transfers and tests of classifiers."""
