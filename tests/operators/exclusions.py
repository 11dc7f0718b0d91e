"""Known failures of the sweep without a fault of Pleat's, each with its reason.

An entry is (name, check, problem, reason). `name` is the printed name of a failure ("op_db/linalg.svd",
"module_db/nn.RReLU") and `problem` the text after it; both are regular expressions, the first matched in full, the second
searched. `check` is "lossless", "lossy" or "both". Excluded failures are counted and listed in the report.

Only cases that fail in stock PyTorch with *any* saved-tensor hook of that precision belong here.
"""

EXCLUSIONS: list[tuple[str, str, str, str]] = [
    (
        r"op_db/linalg\.eig",
        "lossy",
        r"raises \('double backward', .*specified up to multiplication by e\^\{i phi\}",
        "linalg_eig_backward checks that its incoming gradient is gauge invariant to rounding error; in "
        "double backward that gradient has been computed from lossy tensors. Stock with Python hooks "
        "that round float32 to 4 bits raises the same on samples 4 and 6 (not at 8 bits).",
    ),
]
