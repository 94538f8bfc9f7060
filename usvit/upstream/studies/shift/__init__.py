"""Leave-one-set-out measurement of shift, where the sets are data sets, or devices of one data set.

``sets`` opens and joins the sets and refuses those that overlap; ``training`` turns each left-out set into a run of a
study; ``figures`` compares the networks on both sides with the statistics of ``usvit.metrics.shift``; ``api`` puts the
steps together, and ``pages`` writes the page.
"""
