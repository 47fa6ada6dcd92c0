"""Writes inputs as raw files, for `uopc bench --inputs DIR`.

    python dump.py DIR [WORKLOAD ...] [--common FOLDER]

A folder for each set of inputs, in it NAME.f32 or NAME.i32, little-endian. FOLDER is that of the
scripts which define the other workloads' inputs (a `common.py`); without it only the workloads of
`workloads.py` are written. With names only their inputs are written.
"""

import argparse
import os
import sys

import numpy as np

import workloads


def write(root, folder, arrays):
    os.makedirs(os.path.join(root, folder), exist_ok=True)
    for name, array in arrays.items():
        kind = "i32" if array.dtype == np.int32 else "f32"
        path = os.path.join(root, folder, f"{name}.{kind}")
        np.ascontiguousarray(array).astype("<" + ("i4" if kind == "i32" else "f4")).tofile(path)


def others(common):
    """Sets of inputs by folder, each made when it is asked for, and the workloads that read them."""
    sets = {}
    for n in (256, 512, 1024, 2048):
        sets[f"matmul_{n}"] = ([f"matmul_{n}"], lambda n=n: common.matmul_inputs(n))
    sets["matmul_bf16_1024"] = (["matmul_bf16_1024"], lambda: common.matmul_inputs(1024))
    sets["elementwise_16m"] = (["elementwise_16m"], common.elementwise_inputs)
    sets["softmax"] = (["softmax_4096x1024", "softmax_fwd_bwd"], common.softmax_inputs)
    sets["layernorm"] = (["layernorm_fwd_bwd"], common.layernorm_inputs)
    sets["conv2d"] = (["conv2d_fwd", "conv2d_fwd_bwd"], common.conv2d_inputs)
    sets["embedding_bwd"] = (["embedding_bwd"], common.embedding_inputs)

    def model(made):
        parameters, x, y = made
        return {**parameters, "x": x, "y": y}

    def mlp():
        parameters, x, y = common.mlp_inputs("mlp")
        vectors = common.hvp_vectors(parameters)
        return {**parameters, "x": x, "y": y, **{f"v{name}": v for name, v in vectors.items()}}

    sets["mlp"] = (["mlp_step", "hvp_mlp"], mlp)
    sets["tiny"] = (["tiny_step"], lambda: model(common.mlp_inputs("tiny")))
    nano = ["gpt_nano_step", "grad_ratio_gpt_nano"]
    sets["gpt_nano"] = (nano, lambda: model(common.gpt_inputs("nano")))
    sets["gpt_small"] = (["gpt_small_step"], lambda: model(common.gpt_inputs("small")))
    sets["cnn"] = (["cnn_step"], lambda: model(common.cnn_inputs()))
    return sets


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", metavar="DIR")
    parser.add_argument("workloads", metavar="WORKLOAD", nargs="*")
    parser.add_argument("--common", metavar="FOLDER")
    options = parser.parse_args()
    wanted = lambda names: not options.workloads or set(names) & set(options.workloads)
    for name in workloads.NAMES:
        if wanted([name]):
            write(options.root, workloads.folder(name), workloads.named(name))
    if options.common:
        sys.path.append(options.common)
        import common

        for folder, (names, make) in others(common).items():
            if wanted(names):
                write(options.root, folder, make())


main()
