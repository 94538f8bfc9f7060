"""The measurements of ``benchmarks/gpu.py``: their plan, the processes that make them, their file and their page.

The command itself imports none of usvit and no PyTorch, so that a machine that lacks packages can say which. Each
measurement runs in a process of its own (``worker``), which calls one function of ``crossval``, ``scoring``,
``pretraining``, ``distributed``, ``zoo`` or ``gpu_tests``.
"""
