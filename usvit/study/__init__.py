"""Many runs as one study: a grid in one YAML file, one state that is resumed, one table beside the paper's.

``spec`` is the file's schema, ``plan`` makes runs of it, ``state`` keeps what became of them, ``engines`` make them
here or through Ray, ``run`` is the whole, ``tables`` and ``text`` and ``output`` show what came out.
"""
