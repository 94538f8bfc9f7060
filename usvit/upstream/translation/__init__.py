"""Translation by a sequence-to-sequence ResMLP, beside a Transformer of the same size (Touvron 2022, Table 4.5)."""
