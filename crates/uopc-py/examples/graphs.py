"""Looks into what becomes of a function: its graph, its gradient, its kernels, its C.

    python graphs.py

It ends with the plan's reasons, the last of which is:

    b4: f32 x 1, output, root
"""

from uopc import Tensor
from uopc.gradient import gradient
from uopc.kernelize import listing, make_plan
from uopc.uop import Ops, UOp


def main() -> None:
    x = UOp.buffer(4, "f32", slot=0)
    f = (x * x).exp().reduce(Ops.ADD, 1)
    print("sum(exp(x*x)):", f.to_uir(), sep="\n")

    (g,) = gradient(f, [x])
    print("its gradient:", g.to_uir(), sep="\n")
    print("in C:", listing(g, name="slope", schedule="plain"), sep="\n")

    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    loss = (w.softmax() * Tensor([0.0, 1.0, 2.0])).sum()
    plan, inputs = make_plan(loss)
    print(f"a loss takes {len(plan.kernels)} kernels and reads {len(inputs)} buffers:")
    print(plan.explain())


if __name__ == "__main__":
    main()
