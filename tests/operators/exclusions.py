"""Samples of PyTorch's operator table that the sweep does not judge, each with the reason why.

An entry is (pattern of the sample's name, configuration, reason). The name is what a failure prints:
"op_db/linalg.svd", "module_db/nn.RReLU"; the pattern is a full-match regular expression; the
configuration is "lossless", "lossy" or "both". Excluded samples still run (a crash is a failure);
only their comparison is dropped, and they are counted and listed.

Only cases that are wrong in stock PyTorch with *any* saved-tensor hook belong here, after they are
understood. Start and, if possible, stay empty.
"""

EXCLUSIONS: list[tuple[str, str, str]] = []
